/** Handles optional whitespace around the parts of a header (RFC 9110 section 5.6.3). */

const isOws = (code: number): boolean => code === 0x20 || code === 0x09;

/**
 * Removes only spaces and tabs from both ends. `String.trim()` also removes U+00A0 and others. A
 * cookie named `\u00a0__Host-x`, which browsers accept without the rules of the prefix, would then
 * become `__Host-x`.
 */
export function trimOws(text: string): string {
  let start = 0;
  let end = text.length;
  while (start < end && isOws(text.charCodeAt(start))) start++;
  while (end > start && isOws(text.charCodeAt(end - 1))) end--;
  return start === 0 && end === text.length ? text : text.slice(start, end);
}
