/** Finds projects and datasets by id or name. */
import { sql } from 'kysely';
import type { Guarded } from '../domain/identity/access.ts';
import type { Db } from './engine/tables.ts';
import { guardedOf } from './rows/project.ts';

/** Returns the project whose id equals `idOrName`, else the one with this name, else null. */
export async function guardedProject(db: Db, idOrName: string): Promise<Guarded | null> {
  const row = await db
    .selectFrom('projects')
    .select(['id', 'members'])
    .where((eb) => eb.or([eb('id', '=', idOrName), eb('name', '=', idOrName)]))
    .orderBy(sql`case when id = ${idOrName} then 0 else 1 end`)
    .limit(1)
    .executeTakeFirst();
  return row === undefined ? null : guardedOf(row);
}

/** Returns the id that equals `idOrName`, else the id of the row with this name, else null. */
export async function idOf(
  db: Db,
  table: 'projects' | 'datasets',
  idOrName: string,
): Promise<string | null> {
  const row = await db
    .selectFrom(table)
    .select('id')
    .where((eb) => eb.or([eb('id', '=', idOrName), eb('name', '=', idOrName)]))
    .orderBy(sql`case when id = ${idOrName} then 0 else 1 end`)
    .limit(1)
    .executeTakeFirst();
  return row?.id ?? null;
}
