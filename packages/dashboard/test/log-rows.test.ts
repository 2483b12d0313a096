/** Rows of the log viewer: folds of stack traces, matches with the lines around them. */
import { describe, expect, test } from 'vitest';
import { type LogRow, rowsOf } from '../src/parts/log-rows.ts';

type Line = { key: string; text: string };
const linesOf = (...texts: string[]): Line[] =>
  texts.map((text, index) => ({ key: String(index), text }));
const NONE = { keep: null, context: 0, open: new Set<string>(), linked: null };
const shown = (rows: LogRow<Line>[]): string[] =>
  rows.map((row) =>
    row.kind === 'line'
      ? row.line.text
      : row.kind === 'fold'
        ? `(${row.count} ${row.open ? 'open' : 'folded'})`
        : `(${row.count} between)`,
  );
const many = (count: number, text: (index: number) => string): string[] =>
  Array.from({ length: count }, (_, index) => text(index));

describe('stack traces', () => {
  const frames = many(8, (i) => `    at step${i} (/srv/app.js:${i}:3)`);
  test.each([
    ['JavaScript', frames],
    ['Java', [...many(7, (i) => `\tat org.example.Step.run(Step.java:${i})`), '\t... 12 more']],
    [
      'Python',
      [0, 1, 2, 3].flatMap((i) => [`  File "/srv/app.py", line ${i}, in step`, `    step(${i})`]),
    ],
    ['Ruby', many(8, (i) => `\tfrom /srv/app.rb:${i}:in 'step'`)],
    ['PHP', many(8, (i) => `#${i} /srv/app.php(${i}): step()`)],
  ])('of %s: the first two lines stay', (_, trace) => {
    const rows = rowsOf(linesOf('Error: no', ...trace, 'goes on'), NONE);
    expect(shown(rows)).toEqual(['Error: no', trace[0], trace[1], '(6 folded)', 'goes on']);
  });
  test('in a build: the time of the step stands before each line, and steps are no stack trace', () => {
    const steps = [
      '#1 [internal] load build definition',
      '#4 [1/5] FROM node:24',
      ...many(8, (i) => `#6 ${i}.120 added ${i} packages`),
    ];
    const trace = frames.map((text) => `#8 1.902 ${text}`);
    const rows = rowsOf(linesOf(...steps, ...trace, '#8 ERROR: exit code 1'), NONE);
    expect(shown(rows)).toEqual([
      ...steps,
      trace[0],
      trace[1],
      '(6 folded)',
      '#8 ERROR: exit code 1',
    ]);
  });
  test('a fold opens, and the line of a link opens its fold', () => {
    const lines = linesOf('Error: no', ...frames);
    const closed = rowsOf(lines, NONE);
    const id = closed.find(({ kind }) => kind === 'fold')?.id ?? '';
    const opened = ['Error: no', ...frames.slice(0, 2), '(6 open)', ...frames.slice(2)];
    expect(shown(rowsOf(lines, { ...NONE, open: new Set([id]) }))).toEqual(opened);
    expect(shown(rowsOf(lines, { ...NONE, linked: '7' }))).toEqual(opened);
  });
  test('short ones, lists and indented text stay', () => {
    const texts = [
      'Error: no',
      ...frames.slice(0, 5),
      '  - one',
      '    two',
      '#1',
      ...many(9, (i) => `      line ${i}`),
    ];
    expect(shown(rowsOf(linesOf(...texts), NONE))).toEqual(texts);
  });
});

describe('matches', () => {
  const lines = linesOf(...many(20, String));
  const keep = ({ text }: Line): boolean => text === '5' || text === '7' || text === '15';
  test('alone', () => expect(shown(rowsOf(lines, { ...NONE, keep }))).toEqual(['5', '7', '15']));
  test('with the lines around them, each once', () =>
    expect(shown(rowsOf(lines, { ...NONE, keep, context: 2 }))).toEqual([
      ...[
        '(3 between)',
        '3',
        '4',
        '5',
        '6',
        '7',
        '8',
        '9',
        '(3 between)',
        '13',
        '14',
        '15',
        '16',
        '17',
        '(2 between)',
      ],
    ]));
  test('no match shows nothing', () =>
    expect(rowsOf(lines, { ...NONE, keep: () => false, context: 2 })).toEqual([]));
  test('the line of a link is shown without a match', () =>
    expect(shown(rowsOf(lines, { ...NONE, keep, linked: '9' }))).toEqual(['5', '7', '9', '15']));
  test('every row has an id of its own', () => {
    const ids = rowsOf(lines, { ...NONE, keep, context: 1 }).map(({ id }) => id);
    expect(new Set(ids).size).toBe(ids.length);
  });
});
