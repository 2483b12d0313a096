/** What several files ask about a task's row. */
import { sql } from 'kysely';
import { DomainError } from '../domain/errors.ts';
import type { Db } from './engine/tables.ts';
import type { Row } from './engine/tables.ts';

/** Written out: with a parameter SQLite does not see that the partial index `tasks_sync` will do. */
export const isSync = sql<boolean>`kind = 'sync'`;

/** Throws not_found. */
export async function taskRow(db: Db, id: string): Promise<Row<'tasks'>> {
  const row = await db.selectFrom('tasks').selectAll().where('id', '=', id).executeTakeFirst();
  if (row === undefined) throw new DomainError('not_found', 'the task does not exist');
  return row;
}
