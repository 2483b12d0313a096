/** Finds ids by name. */
import { sql } from 'kysely';
import type { Db } from './engine/tables.ts';

/** Returns the id that equals `idOrName`, else the id of the row with this name, else null. */
export async function idOf(db: Db, table: 'projects' | 'datasets', idOrName: string): Promise<string | null> {
  const row = await db
    .selectFrom(table)
    .select('id')
    .where((eb) => eb.or([eb('id', '=', idOrName), eb('name', '=', idOrName)]))
    .orderBy(sql`case when id = ${idOrName} then 0 else 1 end`)
    .limit(1)
    .executeTakeFirst();
  return row?.id ?? null;
}
