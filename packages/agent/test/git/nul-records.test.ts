/** Records that end with NUL, in output of any size. */
import { expect, it } from 'vitest';
import { recordReader, type RecordLimits } from '../../src/git/nul-records.ts';

const LIMITS: RecordLimits = { records: 100, bytes: 1_000_000, length: 10 };
function read(
  chunks: readonly (string | Buffer)[],
  limits: Partial<RecordLimits> = {},
): { records: string[]; taken: number } {
  const records: string[] = [];
  const take = recordReader({ ...LIMITS, ...limits }, (record) => records.push(record));
  let taken = 0;
  for (const chunk of chunks) {
    taken += 1;
    if (!take(Buffer.from(chunk))) break;
  }
  return { records, taken };
}

it('joins a record, and a character, from several chunks', () => {
  const euro = Buffer.from('€');
  expect(read(['a', 'b\0\0c', euro.subarray(0, 1), euro.subarray(1), '\0rest']).records).toEqual([
    'ab',
    '',
    'c€',
  ]);
});

it('leaves out a record that is too long, and reads the next one', () => {
  expect(
    read(['x'.repeat(11), '\0', 'y'.repeat(10), '\0', 'z'.repeat(9), 'zz', '\0ok\0']).records,
  ).toEqual(['y'.repeat(10), 'ok']);
});

it('stops after the limit of records and of bytes', () => {
  const endless = Array.from({ length: 50 }, () => 'a\0'.repeat(30));
  const byRecords = read(endless);
  expect([byRecords.records.length, byRecords.taken]).toEqual([100, 4]);
  const byBytes = read(endless, { bytes: 125 });
  expect([byBytes.records.length, byBytes.taken]).toEqual([62, 3]);
  // Records that are left out count too.
  expect(
    read(endless.map(() => `${'x'.repeat(20)}\0`).concat(...endless), { records: 10 }),
  ).toEqual({ records: [], taken: 10 });
});
