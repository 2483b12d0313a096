/**
 * Returns the text of a JSON column. Null stays null (an empty column), and undefined stays
 * undefined (the statement does not set the column).
 */
export function jsonColumn<T>(value: T): string | Extract<T, null | undefined> {
  return value === undefined || value === null
    ? (value as Extract<T, null | undefined>)
    : JSON.stringify(value);
}
