/**
 * Returns the text of a JSON column. Null stays null (the column is empty), and undefined stays
 * undefined (a statement does not set the column).
 */
export function jsonColumn<T>(value: T): string | Extract<T, null | undefined> {
  return value === undefined || value === null
    ? (value as Extract<T, null | undefined>)
    : JSON.stringify(value);
}

/** Returns the column of a flag; undefined stays undefined. */
export function flagColumn<T extends boolean | undefined>(
  value: T,
): number | Extract<T, undefined> {
  return value === undefined ? (value as Extract<T, undefined>) : Number(value);
}
