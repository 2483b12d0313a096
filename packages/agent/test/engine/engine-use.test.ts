/** Sizes as docker prints them. */
import { expect, it } from 'vitest';
import { bytesOf } from '../../src/engine/engine-use.ts';

it.each([
  ['0B', 0],
  ['1.234GB', 1_234_000_000],
  ['45.6kB', 45_600],
  ['999MB', 999_000_000],
  ['1.2TB', 1.2e12],
  ['', null],
  ['many', null],
])('bytesOf reads the size %s as %s', (text, bytes) => expect(bytesOf(text)).toBe(bytes));
