import { expect, test } from 'vitest';
import { createOverlap } from '../../src/api/log-overlap.ts';

const NONE = { stdout: '', stderr: '' };
const at = (n: number): string => `2026-11-23T20:00:00.${String(n).padStart(9, '0')}Z`;
const line = (n: number, text = `line ${n}`, stream: 'stdout' | 'stderr' = 'stdout') => ({ at: at(n), text, stream });

test('lines up to the newest of the read were shown, of each stream', () => {
  const overlap = createOverlap([line(1), line(2, 'e', 'stderr'), line(3)], [], NONE);
  expect([line(1), line(3), line(4)].map(overlap.wasShown)).toEqual([true, true, false]);
  expect([line(2, 'e', 'stderr'), line(3, 'f', 'stderr')].map(overlap.wasShown)).toEqual([true, false]);
});

test('two lines with the same nanosecond are two lines', () => {
  const overlap = createOverlap([line(1), line(2, 'a')], [], NONE);
  expect([line(2, 'a'), line(2, 'b'), line(2, 'a')].map(overlap.wasShown)).toEqual([true, false, false]);
});

test('a line that the channel had before the viewer is not taken for a later one', () => {
  const overlap = createOverlap([line(2, 'same')], [line(2, 'same')], NONE);
  expect(overlap.wasShown(line(2, 'same'))).toBe(false);
});

test('what an earlier connection had is not shown again', () => {
  const overlap = createOverlap([], [], { stdout: at(5), stderr: '' });
  expect([line(4), line(5), line(6)].map(overlap.wasShown)).toEqual([true, true, false]);
});

test('numbers that are missing before the first new line are lost, except those that the read had', () => {
  const overlap = createOverlap([line(1), line(2), line(3)], [line(1)], NONE);
  // The agent dropped 2 to 7 of its live lines; the read had 2 and 3.
  expect(overlap.lost(6, line(8))).toBe(4);
  expect(overlap.wasShown(line(8))).toBe(false);
  expect(overlap.lost(2, null)).toBe(2);
});

test('a gap is reported once, in parts', () => {
  const overlap = createOverlap([line(1), line(2), line(3)], [], NONE);
  expect(overlap.lost(2, null)).toBe(0);
  expect(overlap.lost(3, line(7))).toBe(2);
});
