/** Reads a Cookie header (RFC 6265bis section 5.6). */
import { trimOws } from './ows.ts';

/**
 * Returns the name of a pair, without spaces and tabs around it. A pair without `=` has only a
 * value and no name.
 */
export function cookieName(pair: string): string {
  const equals = pair.indexOf('=');
  return equals === -1 ? '' : trimOws(pair.slice(0, equals));
}

/**
 * Returns at most `max` values of `name`, in the order sent. A name can occur more than once
 * (section 4.2.2).
 */
export function cookiesNamed(header: string | undefined, name: string, max: number): string[] {
  if (header === undefined || !header.includes(name)) return [];
  const values: string[] = [];
  for (const pair of header.split(';')) {
    if (cookieName(pair) !== name) continue;
    values.push(trimOws(pair.slice(pair.indexOf('=') + 1)));
    if (values.length === max) break;
  }
  return values;
}
