/**
 * `sync` tasks: requested copies of datasets to a node. They belong to no project, so no plan
 * creates or ends them; this file does.
 *
 * pending -> running (claimed) -> completed | failed (reported)
 * running -> pending (lease expired); pending, running -> lost (deadline passed, node deleted)
 */
import type { TaskReport } from '@berth/wire/task';
import type { TaskState } from '@berth/wire/vocabulary';
import type { NewSync, Overdue, TaskStore } from '../../domain/deployments/task-store.ts';
import { DomainError } from '../../domain/platform/errors.ts';
import type { TaskRecord } from '../../domain/platform/records.ts';
import type { Database } from '../engine/database.ts';
import type { Row, Tx } from '../engine/tables.ts';
import { newTaskColumns, taskOf } from '../rows/task.ts';
import {
  changeOverdue,
  endReported,
  isSync,
  lostAt,
  repeatedReport,
  taskRow,
} from '../task-row.ts';

type SyncMethods = Pick<TaskStore, 'copyWork' | 'createSync' | 'endSync' | 'loseSync' | 'syncsOf'>;
type Sync = TaskRecord<'sync'>;

/** How long a finished task is listed, and how long its row is kept. */
const SHOWN_MS = 3_600_000;
const KEPT_MS = 7 * 86_400_000;
const SHOWN_A_NODE = 20;

const syncOf = (row: Row<'tasks'>): Sync => taskOf(row) as Sync;

export function syncMethods(db: Database): SyncMethods {
  return {
    createSync: (input, now) => createSync(db, input, now),
    endSync: (id, leaseToken, report, now) => endSync(db, id, leaseToken, report, now),
    loseSync: (task, why, now) => loseSync(db, task, why, now),
    syncsOf: (nodeIds, now) => syncsOf(db, nodeIds, now),
    copyWork: (since) => copyWork(db, since),
  };
}

async function createSync(
  db: Database,
  input: NewSync,
  now: number,
): Promise<{ task: TaskRecord<'sync'>; created: boolean }> {
  return db.write(async (tx) => {
    // Takes a lock, so that the second of two concurrent requests finds the task of the first.
    await db.capabilities.lockName(tx, `sync:${input.node_id}`);
    await refuseGoingNode(db, tx, input.node_id);
    const open = await openSync(tx, input);
    if (open !== null) return { task: open, created: false };
    // Removes old tasks wherever tasks are added, so that their number is bounded.
    await tx
      .deleteFrom('tasks')
      .where(isSync)
      .where('node_id', '=', input.node_id)
      .where('finished_at', '<=', now - KEPT_MS)
      .execute();
    const columns = newTaskColumns({ ...input, kind: 'sync', deployment_id: null }, null, now);
    const row = await tx
      .insertInto('tasks')
      .values(columns)
      .returningAll()
      .executeTakeFirstOrThrow();
    return { task: syncOf(row), created: true };
  });
}

async function endSync(
  db: Database,
  id: string,
  leaseToken: string | null,
  report: TaskReport,
  now: number,
): Promise<{ status: TaskState }> {
  const ended = await db.writeOne((kysely) =>
    endReported(kysely, isSync, { id, leaseToken, report }, now),
  );
  return {
    status:
      ended?.status ?? repeatedReport(syncOf(await taskRow(db.kysely, id)), leaseToken, report),
  };
}

async function loseSync(
  db: Database,
  task: TaskRecord,
  why: Overdue,
  now: number,
): Promise<boolean> {
  const set =
    why === 'lease'
      ? {
          status: 'pending' as const,
          lease_token: null,
          lease_expires_at: null,
          progress: null,
        }
      : lostAt(now);
  return (
    (await db.writeOne((kysely) => changeOverdue(kysely, isSync, { task, why, set }))) !== undefined
  );
}

async function syncsOf(
  db: Database,
  nodeIds: readonly string[],
  now: number,
): Promise<Map<string, TaskRecord<'sync'>[]>> {
  const byNode = new Map<string, Sync[]>(nodeIds.map((id) => [id, []]));
  if (nodeIds.length === 0) return byNode;
  const rows = await db.kysely
    .selectFrom('tasks')
    .selectAll()
    .where(isSync)
    .where('node_id', 'in', [...nodeIds])
    .where((eb) => eb.or([eb('finished_at', 'is', null), eb('finished_at', '>', now - SHOWN_MS)]))
    .orderBy('seq', 'desc')
    .execute();
  for (const row of rows) {
    const list = byNode.get(row.node_id);
    if (list !== undefined && list.length < SHOWN_A_NODE) list.push(syncOf(row));
  }
  return byNode;
}

async function copyWork(
  db: Database,
  since: number,
): Promise<{ syncs: Sync[]; deploying: Set<string> }> {
  const rows = await db.kysely
    .selectFrom('tasks')
    .selectAll()
    .where(isSync)
    .where((eb) => eb.or([eb('finished_at', 'is', null), eb('finished_at', '>', since)]))
    .orderBy('seq')
    .execute();
  const deploys = await db.kysely
    .selectFrom('tasks')
    .select('node_id')
    .distinct()
    .where('kind', '=', 'deploy')
    .where('finished_at', 'is', null)
    .execute();
  return { syncs: rows.map(syncOf), deploying: new Set(deploys.map((row) => row.node_id)) };
}

async function refuseGoingNode({ capabilities }: Database, tx: Tx, nodeId: string): Promise<void> {
  const node = await tx
    .selectFrom('nodes')
    .select('deleting_at')
    .where('id', '=', nodeId)
    // The row lock keeps nodes.removeIfGone from deleting the node while its task is created.
    .$if(capabilities.rowLocks, (q) => q.forUpdate())
    .executeTakeFirst();
  if (node === undefined) throw new DomainError('not_found', 'the node does not exist');
  if (node.deleting_at !== null) throw new DomainError('being_deleted');
}

async function openSync(tx: Tx, { node_id, payload: { dataset } }: NewSync): Promise<Sync | null> {
  const open = await tx
    .selectFrom('tasks')
    .selectAll()
    .where('node_id', '=', node_id)
    .where('finished_at', 'is', null)
    .where('kind', '=', 'sync')
    .execute();
  const same = ({ payload }: Sync): boolean =>
    payload.dataset.dataset_id === dataset.dataset_id &&
    payload.dataset.version === dataset.version;
  return open.map(syncOf).find(same) ?? null;
}
