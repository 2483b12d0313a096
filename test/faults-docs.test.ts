/**
 * docs/faults.md and the rows of the fault suite are equal; the rows' invariants are those of
 * docs/invariants.md.
 */
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { ROWS } from './faults/lib/rows.ts';

const ROOT = path.resolve(import.meta.dirname, '..');
const read = (file: string): string => readFileSync(path.join(ROOT, file), 'utf8');
const rowsOf = (document: string): string[][] =>
  document
    .split('\n')
    .filter((line) => line.startsWith('| ') && !/^\| (fault|---) /.test(line))
    .map((line) => line.slice(2, -2).split(' | '))
    // The rows of "Machines that stop" have other files and two columns.
    .filter(({ length }) => length !== 2);

test('docs/faults.md has a line for every row of the suite, and the suite has a row for every line', () => {
  const wanted = ROWS.map((row) => [
    row.fault,
    row.answer,
    row.invariants.map((id) => `\`${id}\``).join(', '),
  ]);
  expect(rowsOf(read('docs/faults.md'))).toEqual(wanted);
});

test('row names are unique', () => {
  expect(new Set(ROWS.map((row) => row.fault)).size).toBe(ROWS.length);
});

test.skipIf(!existsSync(path.join(ROOT, 'docs/invariants.md')))(
  'docs/invariants.md lists every invariant of a row',
  () => {
    const known = read('docs/invariants.md');
    expect(
      ROWS.flatMap((row) => row.invariants).filter((id) => !known.includes(`\`${id}\``)),
    ).toEqual([]);
  },
);
