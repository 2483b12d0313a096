/** Queries about a task's row that several files use. */
import { sql } from 'kysely';
import { DomainError } from '../domain/errors.ts';
import type { Db } from './engine/tables.ts';
import type { Row } from './engine/tables.ts';

/** A literal, because with a parameter SQLite does not use the partial index `tasks_sync`. */
export const isSync = sql<boolean>`kind = 'sync'`;

/** A literal, because with a parameter SQLite does not use the partial index `tasks_clean`. */
export const isClean = sql<boolean>`kind = 'clean'`;

/** Throws not_found. */
export async function taskRow(db: Db, id: string): Promise<Row<'tasks'>> {
  const row = await db.selectFrom('tasks').selectAll().where('id', '=', id).executeTakeFirst();
  if (row === undefined) throw new DomainError('not_found', 'the task does not exist');
  return row;
}
