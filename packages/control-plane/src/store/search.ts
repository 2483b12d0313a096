/** Searches for a part of a text, ignoring case. */
import { type RawBuilder, sql } from 'kysely';

/** Returns the condition that the concatenated columns contain `part`. */
export function contains(columns: readonly string[], part: string): RawBuilder<boolean> {
  const pattern = `%${part.toLowerCase().replaceAll(/[\\%_]/g, String.raw`\$&`)}%`;
  const text = sql.join(
    columns.map((column) => sql.ref(column)),
    sql` || ' ' || `,
  );
  return sql<boolean>`lower(${text}) like ${pattern} escape '\\'`;
}
