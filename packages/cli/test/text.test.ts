/**
 * Text in a terminal: columns, wide characters, control characters, and steps that are drawn again.
 */
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { readConfig } from '../src/config.ts';
import { createRenderer } from '../src/deploy/render.ts';
import type { Step } from '../src/deploy/steps.ts';
import type { Io } from '../src/io.ts';
import {
  jsonLine,
  paintWith,
  safe,
  safePainted,
  table,
  truncate,
  widthOf,
} from '../src/output/text.ts';

test.each([
  ['plain', 5],
  ['über', 4],
  ['u\u0308ber', 4],
  ['価格', 4],
  ['👩‍💻 ok', 5],
  ['→ ✓', 3],
  ['', 0],
])('%j takes %i columns', (text, width) => expect(widthOf(text)).toBe(width));

test('a text is cut by its columns, and never inside a character', () => {
  expect(truncate('新しい価格', 6)).toBe('新し…');
  expect(truncate('plain text', 6)).toBe('plain…');
  expect(truncate('plain', 5)).toBe('plain');
});

test('columns stay aligned beside wide characters', () => {
  const rows = table(
    [
      { a: '価格', b: 'x' },
      { a: 'shop', b: 'y' },
    ],
    [
      { head: 'NAME', of: (row) => row.a },
      { head: 'OTHER', of: (row) => row.b },
    ],
  ).split('\n');
  expect(rows).toEqual(['NAME  OTHER', '価格  x', 'shop  y']);
});

describe('control characters', () => {
  const evil = 'a\u001b]0;title\u0007b\u001b[1mc\u009b2Jd\u202ee\rf\tg\nh';
  test('are removed; tab and newline stay', () => expect(safe(evil)).toBe('abcdef\tg\nh'));
  test('are escaped in JSON, which stays the same value', () => {
    expect(jsonLine({ evil })).not.toMatch(/\p{Cc}|\u202e/u);
    expect(JSON.parse(jsonLine({ evil }))).toEqual({ evil });
  });
  test('our own colours stay', () => {
    const red = paintWith(true)('red', 'x');
    expect(safePainted(`${red}${evil.replace('\u001b[1m', '')}`)).toBe(`${red}abcdef\tg\nh`);
  });
});

describe('steps that are drawn again', () => {
  const step = (name: Step['name'], detail: string): Step => ({
    name,
    state: 'running',
    detail,
    live: '',
    startedAt: 0,
    endedAt: null,
  });
  /** The number of rows that each picture moves up before it is drawn again. */
  function drawn(widths: readonly number[]): (number | null)[] {
    vi.useFakeTimers();
    onTestFinished(() => void vi.useRealTimers());
    const shown: string[] = [];
    let columns = 80;
    const io = {
      config: readConfig({ HOME: '/', TERM: 'xterm' }),
      terminal: { in: true, out: true, err: true },
      err: (text: string) => void shown.push(text),
      columns: () => columns,
      now: () => 0,
      monotonic: () => 0,
    } as unknown as Io;
    const renderer = createRenderer(io);
    for (const width of widths) {
      columns = width;
      renderer.show([step('build', 'x'.repeat(200)), step('place', 'y'.repeat(200))]);
    }
    return shown
      .filter((text) => text.includes('build'))
      .map((text) => {
        const up = /^\P{L}*?\[(\d+)A/u.exec(text)?.[1];
        return up === undefined ? null : Number(up);
      });
  }

  test('in a terminal of one width, they move up by their number', () =>
    expect(drawn([80, 80])).toEqual([null, 2]));
  test('in a terminal that became narrower, they move up by the rows that they take now', () =>
    expect(drawn([80, 40, 40, 80])).toEqual([null, 4, 2, 2]));
});
