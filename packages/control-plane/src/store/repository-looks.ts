/**
 * `look` tasks: an agent inspects a repository before or without a project. No plan creates or ends
 * them, so their rows name no project; the payload can name one.
 *
 * pending -> running (claimed) -> completed | failed (reported)
 * pending, running -> lost (deadline passed, lease expired, control plane stopped)
 */
import { defined } from '@berth/kit/defined';
import type { RepositoryLookPayload } from '@berth/wire/repository-look';
import type { TaskReport } from '@berth/wire/task';
import type { TaskState } from '@berth/wire/vocabulary';
import { sql } from 'kysely';
import {
  FRESH_MS,
  isRepositoryLook,
  KEPT_MS,
  type Loss,
  LOST,
  MAX_KEPT,
  MAX_OPEN,
  type NewRepositoryLook,
  type RepositoryLookRecord,
  type RepositoryLookStore,
  STOPPED,
} from '../domain/git/repository-looks.ts';
import { DomainError } from '../domain/platform/errors.ts';
import type { TaskRecord } from '../domain/platform/records.ts';
import type { Database } from './engine/database.ts';
import type { Db, Row, Tx } from './engine/tables.ts';
import { newTaskColumns, taskOf } from './rows/task.ts';
import { changeOverdue, endReported, lostAt, repeatedReport, taskRow } from './task-row.ts';

const LOCK = 'repository looks';

const recordOf = (row: Row<'tasks'>): RepositoryLookRecord => {
  const task = taskOf(row);
  if (!isRepositoryLook(task))
    throw new DomainError('not_found', 'the look does not exist; it may be too old');
  return task;
};

type Asked = Omit<RepositoryLookPayload, 'repository'>;
/** The order of the fields is fixed, so that equal requests have the same text in the table. */
const payloadOf = ({ git_url, branch, project_id }: Asked): RepositoryLookPayload => ({
  repository: true,
  git_url,
  branch,
  ...defined({ project_id }),
});

/** Matches the index tasks_project_kind. */
const isLook = sql<boolean>`project_id is null and kind = 'look'`;
const looks = (db: Db | Tx) => db.selectFrom('tasks').where(isLook);

export function createRepositoryLookStore(db: Database): RepositoryLookStore {
  return {
    same: (of, now) => findSameLook(db.kysely, of, now),
    create: (look, now) => createLook(db, look, now),
    get: (id) => getLook(db, id),
    open: async () => (await openLookIds(db.kysely)).map(({ id }) => id),
    endTask: (id, leaseToken, report, now) => endLookTask(db, id, leaseToken, report, now),
    loseTask: (task, why, now) => loseLookTask(db, task, why, now),
    endOpen: (now) => endOpenLooks(db, now),
    sweep: (now) => db.write((tx) => deleteOldLooks(tx, now)),
  };
}

/** Reads only one row: a report can have 200 KB, and any user can request such a task. */
async function findSameLook(
  tx: Db | Tx,
  of: Asked,
  now: number,
): Promise<RepositoryLookRecord | null> {
  const row = await looks(tx)
    .selectAll()
    .where('payload', '=', JSON.stringify(payloadOf(of)))
    .where('created_at', '>', now - KEPT_MS)
    .where((eb) =>
      eb.or([
        eb('finished_at', 'is', null),
        eb.and([
          eb('status', '=', 'completed'),
          eb('finished_at', '>', now - FRESH_MS),
          eb('finished_at', '<=', now),
        ]),
      ]),
    )
    .orderBy('seq', 'desc')
    .limit(1)
    .executeTakeFirst();
  return row === undefined ? null : recordOf(row);
}

function openLookIds(tx: Db | Tx): Promise<{ id: string }[]> {
  return looks(tx).select('id').where('finished_at', 'is', null).execute();
}

async function deleteOldLooks(tx: Db | Tx, now: number): Promise<number> {
  const beyond = await looks(tx)
    .select('seq')
    .where('finished_at', 'is not', null)
    .orderBy('seq', 'desc')
    .offset(MAX_KEPT)
    .limit(1)
    .execute();
  const removed = await tx
    .deleteFrom('tasks')
    .where(isLook)
    .where('finished_at', 'is not', null)
    .where((eb) =>
      eb.or([eb('finished_at', '<=', now - KEPT_MS), eb('seq', '<=', beyond[0]?.seq ?? 0)]),
    )
    .executeTakeFirst();
  return Number(removed.numDeletedRows);
}

function createLook(
  db: Database,
  look: NewRepositoryLook,
  now: number,
): Promise<RepositoryLookRecord> {
  return db.write(async (tx) => {
    // Takes a lock, so that the second of two concurrent requests finds the task of the first, and
    // the limit also holds with several control planes.
    await db.capabilities.lockName(tx, LOCK);
    const sameLook = await findSameLook(tx, look.payload, now);
    if (sameLook !== null) return sameLook;
    if ((await openLookIds(tx)).length >= MAX_OPEN)
      throw new DomainError(
        'too_many_requests',
        'builders look into many repositories at the moment; try again soon',
      );
    await deleteOldLooks(tx, now);
    const task = {
      ...look,
      payload: payloadOf(look.payload),
      kind: 'look' as const,
      deployment_id: null,
    };
    const columns = newTaskColumns(task, null, now);
    return recordOf(
      await tx.insertInto('tasks').values(columns).returningAll().executeTakeFirstOrThrow(),
    );
  });
}

async function getLook(db: Database, id: string): Promise<RepositoryLookRecord> {
  const row = await looks(db.kysely).selectAll().where('id', '=', id).executeTakeFirst();
  if (row === undefined)
    throw new DomainError('not_found', 'the look does not exist; it may be too old');
  return recordOf(row);
}

async function endLookTask(
  db: Database,
  id: string,
  leaseToken: string | null,
  report: TaskReport,
  now: number,
): Promise<{ status: TaskState }> {
  const ended = await db.writeOne((kysely) =>
    endReported(kysely, isLook, { id, leaseToken, report }, now),
  );
  return {
    status:
      ended?.status ?? repeatedReport(taskOf(await taskRow(db.kysely, id)), leaseToken, report),
  };
}

async function loseLookTask(
  db: Database,
  task: TaskRecord,
  why: Loss,
  now: number,
): Promise<boolean> {
  const report: TaskReport = { status: 'failed', result: { error: LOST[why] } };
  const set = { ...lostAt(now), report: JSON.stringify(report) };
  return (
    (await db.writeOne((kysely) => changeOverdue(kysely, isLook, { task, why, set }))) !== undefined
  );
}

async function endOpenLooks(db: Database, now: number): Promise<void> {
  const report: TaskReport = { status: 'failed', result: { error: STOPPED } };
  await db.writeOne((kysely) =>
    kysely
      .updateTable('tasks')
      .set({ ...lostAt(now), report: JSON.stringify(report) })
      .where(isLook)
      .where('finished_at', 'is', null)
      .execute(),
  );
}
