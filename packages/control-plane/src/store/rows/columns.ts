/** Converts records to columns and back (`Columns` of engine/tables.ts). */
import type { Column, Columns } from '../engine/tables.ts';

/**
 * Returns the columns of the given fields. Null stays null (an empty column), and undefined stays
 * undefined (the statement does not set the column).
 */
export const encodeColumns = <R extends object>(fields: R): Columns<R> =>
  Object.fromEntries(
    Object.entries(fields).map(([name, value]) => [name, columnOf(value)]),
  ) as Columns<R>;

function columnOf(value: unknown): unknown {
  if (typeof value === 'boolean') return Number(value);
  return typeof value === 'object' && value !== null ? JSON.stringify(value) : value;
}

/** The fields of a record that are a flag or JSON in their column. */
export type Encoded<R> = {
  [K in keyof R as Column<Exclude<R[K], undefined>> extends R[K] ? never : K]: R[K] extends boolean
    ? 'flag'
    : 'json';
};

/** Returns the record of a row. `encoded` names every field that is a flag or JSON. */
export function decodeRow<R>(row: Columns<R>, encoded: Encoded<R>): R {
  const record: Record<string, unknown> = { ...row };
  for (const [name, encoding] of Object.entries(encoded)) {
    const value = record[name];
    if (value !== null)
      record[name] = encoding === 'flag' ? value !== 0 : JSON.parse(value as string);
  }
  return record as R;
}
