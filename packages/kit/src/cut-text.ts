/** Bounds the texts that strangers can put into a log line or an answer. */

/** Returns a short text unchanged, or the beginning of a long text with its length. */
export const cutText = (text: string, most: number): string =>
  text.length <= most ? text : `${text.slice(0, most).toWellFormed()}… (${text.length} characters)`;

const MAX_DEPTH = 4;
const MAX_ENTRIES = 200;
/** True for plain objects and arrays. Other objects, such as errors, have their own serializers. */
const isPlain = (value: object): boolean =>
  Array.isArray(value) || Object.getPrototypeOf(value) === Object.prototype;

/**
 * Returns the value with each text cut to `most` characters, each list or object to 200 entries,
 * and each object that is nested more than 4 levels deep replaced by `…`.
 */
export function cutTexts(value: unknown, most: number, depth = 0): unknown {
  if (typeof value === 'string') return cutText(value, most);
  if (typeof value !== 'object' || value === null || !isPlain(value)) return value;
  if (depth > MAX_DEPTH) return '…';
  if (Array.isArray(value)) {
    const kept = value.slice(0, MAX_ENTRIES).map((one) => cutTexts(one, most, depth + 1));
    return value.length > MAX_ENTRIES ? [...kept, `… (${value.length} entries)`] : kept;
  }
  const entries = Object.entries(value);
  const kept = entries
    .slice(0, MAX_ENTRIES)
    .map(([name, one]) => [cutText(name, most), cutTexts(one, most, depth + 1)]);
  return Object.fromEntries(
    entries.length > MAX_ENTRIES ? [...kept, ['…', `${entries.length} fields`]] : kept,
  );
}
