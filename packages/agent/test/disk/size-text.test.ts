/** Numbers in deployment logs. */
import { expect, it } from 'vitest';
import { sizeText, timeText } from '../../src/disk/size-text.ts';

it.each([
  [0, '0 B'],
  [999, '999 B'],
  [1_000, '1.0 kB'],
  [85_400_000, '85.4 MB'],
  [999_600_000, '1.0 GB'],
  [1_234_567_890_123, '1.2 TB'],
])('sizeText(%d) is %s', (bytes, text) => expect(sizeText(bytes)).toBe(text));
it.each([
  [450, '0.5 s'],
  [14_200, '14 s'],
  [150_000, '3 min'],
  [9_000_000, '2.5 h'],
])('timeText(%d) is %s', (ms, text) => expect(timeText(ms)).toBe(text));
