/**
 * Returns the text of a JSON column. Null stays null (an empty column), and undefined stays
 * undefined (the statement does not set the column).
 */
export function jsonColumn<T>(value: T): string | Extract<T, null | undefined> {
  return value === undefined || value === null
    ? (value as Extract<T, null | undefined>)
    : JSON.stringify(value);
}

/** Returns a flag as 0 or 1; undefined stays undefined. */
export function flagColumn<T extends boolean | undefined>(
  value: T,
): number | Extract<T, undefined> {
  return value === undefined ? (value as Extract<T, undefined>) : Number(value);
}
