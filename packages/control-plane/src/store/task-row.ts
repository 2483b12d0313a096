/**
 * Queries on the row of a task, for several files. A task without a project is created and ended by
 * the store of its kind and not by a plan, with a compare-and-set on attempt and lease.
 */
import { isDeepStrictEqual } from 'node:util';
import type { TaskReport } from '@berth/wire/task';
import { isOpenTask, type TaskState } from '@berth/wire/vocabulary';
import { type Expression, type SqlBool, sql } from 'kysely';
import type { Overdue } from '../domain/deployments/task-store.ts';
import { DomainError } from '../domain/platform/errors.ts';
import type { TaskRecord } from '../domain/platform/records.ts';
import type { Db, Row, Tx } from './engine/tables.ts';

/** A literal in the SQL: with a parameter, SQLite does not use the partial index `tasks_sync`. */
export const isSync = sql<boolean>`kind = 'sync'`;

/** A literal in the SQL: with a parameter, SQLite does not use the partial index `tasks_clean`. */
export const isClean = sql<boolean>`kind = 'clean'`;

/** Columns of a task that ends without a report from an agent. */
export const lostAt = (
  now: number,
): { status: 'lost'; finished_at: number; lease_expires_at: null } => ({
  status: 'lost',
  finished_at: now,
  lease_expires_at: null,
});

/**
 * Ends a claimed task of this kind with the report of its agent. Returns undefined if the task has
 * ended or has another lease.
 */
export const endReported = (
  db: Db | Tx,
  kind: Expression<SqlBool>,
  { id, leaseToken, report }: { id: string; leaseToken: string | null; report: TaskReport },
  now: number,
): Promise<Pick<Row<'tasks'>, 'status' | 'payload'> | undefined> =>
  db
    .updateTable('tasks')
    .set({
      status: report.status,
      finished_at: now,
      lease_expires_at: null,
      report: JSON.stringify(report),
    })
    .where('id', '=', id)
    .where(kind)
    .where('finished_at', 'is', null)
    // Only a claimed task can end here: agents that get these tasks use leases.
    .where('lease_token', '=', leaseToken ?? '')
    .returning(['status', 'payload'])
    .executeTakeFirst();

/**
 * Changes an overdue task of this kind. Returns undefined if the task has changed since `task` was
 * read.
 */
export const changeOverdue = (
  db: Db | Tx,
  kind: Expression<SqlBool>,
  { task, why, set }: { task: TaskRecord; why: Overdue; set: Partial<Row<'tasks'>> },
): Promise<Pick<Row<'tasks'>, 'payload'> | undefined> =>
  db
    .updateTable('tasks')
    .set(set)
    .where('id', '=', task.id)
    .where(kind)
    .where('finished_at', 'is', null)
    .where('attempt', '=', task.attempt)
    // A lease that was renewed meanwhile stays valid, unless the wall deadline has passed.
    .$if(why !== 'wall', (q) =>
      q.where('lease_expires_at', 'is not distinct from', task.lease_expires_at),
    )
    .returning('payload')
    .executeTakeFirst();

/**
 * Returns the answer to a report on a task that has already ended or has a newer attempt. Throws
 * stale_lease, task_over.
 */
export function repeatedReport(
  task: TaskRecord,
  token: string | null,
  report: TaskReport,
): TaskState {
  if (task.lease_token === null || task.lease_token !== token || isOpenTask(task.status))
    throw new DomainError('stale_lease');
  if (task.report === null || !isDeepStrictEqual(task.report, report))
    throw new DomainError('task_over', `the task is ${task.status}`);
  return task.status;
}

/** Returns the row of a task. Throws not_found. */
export async function taskRow(db: Db, id: string): Promise<Row<'tasks'>> {
  const row = await db.selectFrom('tasks').selectAll().where('id', '=', id).executeTakeFirst();
  if (row === undefined) throw new DomainError('not_found', 'the task does not exist');
  return row;
}
