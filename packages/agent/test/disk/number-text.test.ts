/** Numbers in deployment logs. */
import { expect, it } from 'vitest';
import { timeText } from '../../src/disk/number-text.ts';

it.each([
  [450, '0.5 s'],
  [14_200, '14 s'],
  [150_000, '3 min'],
  [9_000_000, '2.5 h'],
])('timeText(%d) is %s', (ms, text) => expect(timeText(ms)).toBe(text));
