/** Queries about a task's row that several files use. */
import { isDeepStrictEqual } from 'node:util';
import type { TaskReport } from '@berth/wire/task';
import { isOpenTask, type TaskState } from '@berth/wire/vocabulary';
import { sql } from 'kysely';
import { DomainError } from '../domain/errors.ts';
import type { TaskRecord } from '../domain/records.ts';
import type { Db } from './engine/tables.ts';
import type { Row } from './engine/tables.ts';

/** A literal, because with a parameter SQLite does not use the partial index `tasks_sync`. */
export const isSync = sql<boolean>`kind = 'sync'`;

/** A literal, because with a parameter SQLite does not use the partial index `tasks_clean`. */
export const isClean = sql<boolean>`kind = 'clean'`;

/** Returns the answer to a report on a task that has ended or has another attempt. Throws stale_lease, task_over. */
export function repeatedReport(task: TaskRecord, token: string | null, report: TaskReport): TaskState {
  if (task.lease_token === null || task.lease_token !== token || isOpenTask(task.status)) throw new DomainError('stale_lease');
  if (task.report === null || !isDeepStrictEqual(task.report, report)) throw new DomainError('task_over', `the task is ${task.status}`);
  return task.status;
}

/** Throws not_found. */
export async function taskRow(db: Db, id: string): Promise<Row<'tasks'>> {
  const row = await db.selectFrom('tasks').selectAll().where('id', '=', id).executeTakeFirst();
  if (row === undefined) throw new DomainError('not_found', 'the task does not exist');
  return row;
}
