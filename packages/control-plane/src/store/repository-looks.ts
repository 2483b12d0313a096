/**
 * `look` tasks into a repository. Their rows name no project, because no plan creates or ends them;
 * a payload may name one.
 *
 * pending -> running (claimed) -> completed | failed (reported)
 * pending, running -> lost (deadline passed, lease expired, control plane stopped)
 */
import { defined } from '@berth/kit/defined';
import type { RepositoryLookPayload } from '@berth/wire/repository-look';
import type { TaskReport } from '@berth/wire/task';
import { sql } from 'kysely';
import { DomainError } from '../domain/platform/errors.ts';
import {
  FRESH_MS,
  isRepositoryLook,
  KEPT_MS,
  LOST,
  MAX_KEPT,
  MAX_OPEN,
  STOPPED,
  type RepositoryLookRecord,
  type RepositoryLookStore,
} from '../domain/git/repository-looks.ts';
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
/** Equal requests get the same text in the table, so the order of the fields matters. */
const payloadOf = ({ git_url, branch, project_id }: Asked): RepositoryLookPayload => ({
  repository: true,
  git_url,
  branch,
  ...defined({ project_id }),
});

/** The index tasks_project_kind finds them. */
const isLook = sql<boolean>`project_id is null and kind = 'look'`;
const looks = (db: Db | Tx) => db.selectFrom('tasks').where(isLook);

export function createRepositoryLookStore(db: Database): RepositoryLookStore {
  /** Reads one row: a report may have 200 KB, and anybody may ask. */
  async function same(tx: Db | Tx, of: Asked, now: number): Promise<RepositoryLookRecord | null> {
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
  const openIds = (tx: Db | Tx) =>
    looks(tx).select('id').where('finished_at', 'is', null).execute();
  const sweep = async (tx: Db | Tx, now: number): Promise<number> => {
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
  };

  return {
    same: (of, now) => same(db.kysely, of, now),

    create: (look, now) =>
      db.write(async (tx) => {
        // The second of two concurrent requests finds the task of the first, and the limit holds
        // with several control planes.
        await db.capabilities.lockName(tx, LOCK);
        const found = await same(tx, look.payload, now);
        if (found !== null) return found;
        if ((await openIds(tx)).length >= MAX_OPEN)
          throw new DomainError(
            'too_many_requests',
            'builders look into many repositories at the moment; try again soon',
          );
        await sweep(tx, now);
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
      }),

    async get(id) {
      const row = await looks(db.kysely).selectAll().where('id', '=', id).executeTakeFirst();
      if (row === undefined)
        throw new DomainError('not_found', 'the look does not exist; it may be too old');
      return recordOf(row);
    },

    open: async () => (await openIds(db.kysely)).map(({ id }) => id),

    async endTask(id, leaseToken, report, now) {
      const ended = await db.writeOne((kysely) =>
        endReported(kysely, isLook, { id, leaseToken, report }, now),
      );
      return {
        status:
          ended?.status ?? repeatedReport(taskOf(await taskRow(db.kysely, id)), leaseToken, report),
      };
    },

    async loseTask(task, why, now) {
      const report: TaskReport = { status: 'failed', result: { error: LOST[why] } };
      const set = { ...lostAt(now), report: JSON.stringify(report) };
      return (
        (await db.writeOne((kysely) => changeOverdue(kysely, isLook, { task, why, set }))) !==
        undefined
      );
    },

    async endOpen(now) {
      const report: TaskReport = { status: 'failed', result: { error: STOPPED } };
      await db.writeOne((kysely) =>
        kysely
          .updateTable('tasks')
          .set({ ...lostAt(now), report: JSON.stringify(report) })
          .where(isLook)
          .where('finished_at', 'is', null)
          .execute(),
      );
    },

    sweep: (now) => db.write((tx) => sweep(tx, now)),
  };
}
