/** Optional whitespace around the parts of a header (RFC 9110 section 5.6.3). */

const isOws = (code: number): boolean => code === 0x20 || code === 0x09;

/**
 * Removes spaces and tabs from both ends, and nothing else. `String.trim()` also removes U+00A0 and others: then a name that a browser
 * keeps as `\u00a0__Host-x`, without the rules of the prefix, would become `__Host-x` here.
 */
export function trimOws(text: string): string {
  let start = 0;
  let end = text.length;
  while (start < end && isOws(text.charCodeAt(start))) start++;
  while (end > start && isOws(text.charCodeAt(end - 1))) end--;
  return start === 0 && end === text.length ? text : text.slice(start, end);
}
