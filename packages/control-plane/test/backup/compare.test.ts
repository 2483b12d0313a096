/** The comparison of the rounds under load finds each kind of wrong copy. */
import { expect, test } from 'vitest';
import { compare, type Seen, type Write } from './load/compare.ts';
import type { Rows } from './load/rows.ts';

const rowsOf = (tables: Record<string, Record<string, object>>): Rows =>
  new Map(
    Object.entries(tables).map(([table, rows]) => [
      table,
      new Map(Object.entries(rows).map(([key, row]) => [key, JSON.stringify(row)])),
    ]),
  );
const user = (email: string) => ({ email });
const project = (n: number) => ({ id: 'p', env: JSON.stringify({ N: String(n) }) });
const write = (marker: string, from: number, more: Partial<Write> = {}): Write => ({
  lane: marker.split(' ')[0] ?? '',
  marker,
  replaced: marker.startsWith('env'),
  from,
  to: from + 5,
  ...more,
});
/** The backup takes from 100 to 200. */
const WRITES = [
  write('user a', 10),
  write('env p 1', 20),
  write('user b', 120),
  write('env p 2', 130),
  write('user c', 150),
  write('env p 3', 160),
  write('user d', 250),
];
const before = rowsOf({ users: { a: user('a') }, projects: { p: project(1) } });
const after = rowsOf({
  users: { a: user('a'), b: user('b'), c: user('c') },
  projects: { p: project(3) },
});
const problemsOf = (restored: Rows, over: Partial<Seen> = {}): string[] =>
  compare({ before, after, restored, writes: WRITES, began: 100, ended: 200, ...over }).problems;

test('every moment between begin and end is good', () => {
  expect(problemsOf(before)).toEqual([]);
  expect(problemsOf(after)).toEqual([]);
  expect(
    problemsOf(rowsOf({ users: { a: user('a'), b: user('b') }, projects: { p: project(1) } })),
  ).toEqual([]);
  expect(
    problemsOf(rowsOf({ users: { a: user('a'), b: user('b') }, projects: { p: project(2) } })),
  ).toEqual([]);
});

test.each<[string, Rows, RegExp]>([
  ['a row is lost', rowsOf({ users: {}, projects: { p: project(1) } }), /^users a: missing/],
  [
    'a row has another value',
    rowsOf({ users: { a: { email: 'a', role: 'admin' } }, projects: { p: project(1) } }),
    /^users a: is .*admin/,
  ],
  [
    'a row is of nowhere',
    rowsOf({ users: { a: user('a'), x: user('x') }, projects: { p: project(1) } }),
    /^users x: never existed/,
  ],
  [
    'an old state',
    rowsOf({ users: { a: user('a') }, projects: { p: project(0) } }),
    /^env p 1: missing, but answered 75 ms before/,
  ],
  [
    'two tables are of two moments',
    rowsOf({ users: { a: user('a') }, projects: { p: project(3) } }),
    /^user b: missing, but env p 3 is there, which was requested 35 ms later/,
  ],
  [
    'the future',
    rowsOf({
      users: { a: user('a'), b: user('b'), c: user('c'), d: user('d') },
      projects: { p: project(3) },
    }),
    /^user d: in the backup, but requested 50 ms after its end/,
  ],
])('found: %s', (_, restored, says) => {
  expect(problemsOf(restored)).toContainEqual(expect.stringMatching(says));
});
