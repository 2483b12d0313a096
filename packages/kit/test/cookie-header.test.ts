import { expect, test } from 'vitest';
import { cookiesNamed } from '../src/cookie-header.ts';
import { trimOws } from '../src/ows.ts';

/**
 * Each is white space for `String.trim()` or for other parsers, and part of a name for browsers.
 */
const OTHER_SPACES = [
  '\u00a0',
  '\u000b',
  '\u000c',
  '\u0085',
  '\u1680',
  '\u2003',
  '\u2028',
  '\u3000',
  '\ufeff',
  '\u0000',
  '\u200b',
];

test.each(OTHER_SPACES)('%j is no optional white space', (space) => {
  expect(trimOws(`${space}a${space}`)).toBe(`${space}a${space}`);
  expect(cookiesNamed(`${space}__Host-x=1; __Host-x${space}=2; x=3`, '__Host-x', 9)).toEqual([]);
  expect(cookiesNamed(`__Host-x=${space}1`, '__Host-x', 9)).toEqual([`${space}1`]);
});

test('spaces and tabs around a name and a value do not count, and names differ by case', () => {
  expect(cookiesNamed('a=0;\t x = 1 ;X=2; =3; x; x==4', 'x', 9)).toEqual(['1', '=4']);
});

test('at most the given number of cookies is read', () => {
  expect(cookiesNamed('x=1; x=2; x=3', 'x', 2)).toEqual(['1', '2']);
  expect(cookiesNamed(undefined, 'x', 2)).toEqual([]);
});
