/**
 * Hooks of projects and their deliveries. A delivery waits (its verdict is null) until a plan
 * writes its verdict (commit-plan.ts). The methods that add deliveries also remove old ones, so the
 * number for each project is bounded.
 */
import {
  type DeliveryRecord,
  type HookRecord,
  type HookStore,
  KEPT_DELIVERIES,
  KEPT_DELIVERY_MS,
  MAX_WAITING_DELIVERIES,
  type NewDelivery,
  type PushChange,
  type Pushes,
  REPLACED,
  REPLAY_MS,
} from '../domain/git/hooks.ts';
import { DomainError } from '../domain/platform/errors.ts';
import type { Page, Paged } from '../domain/platform/page.ts';
import type { Database } from './engine/database.ts';
import type { Row, Tx } from './engine/tables.ts';
import { writeEvents } from './events.ts';
import { accessEvent, changingProject } from './git/project-row.ts';
import { keyAfter, paged } from './pages.ts';

const hookOf = (row: Row<'hooks'>): HookRecord => row;
const deliveryOf = (row: Row<'deliveries'>): DeliveryRecord => row;

const SWEPT_AT_ONCE = 500;

export const createHookStore = (db: Database): HookStore => ({
  put: (hook, now) => putHook(db, hook, now),
  get: (projectId) => getHook(db, projectId),
  remove: (projectId, now) => removeHook(db, projectId, now),
  receive: (projectId, delivery, now) => receiveDelivery(db, projectId, delivery, now),
  refuse: (projectId, delivery, others, now) =>
    refuseDelivery(db, projectId, delivery, others, now),
  deliveries: (projectId, page) => listHookDeliveries(db, projectId, page),
  delivery: (projectId, id) => getHookDelivery(db, projectId, id),
  pushes: (projectId) => pushesOf(db, projectId),
  waiting: () => waitingPushes(db),
  countWaiting: () => countWaitingPushes(db),
  sweep: (now) => sweepHookDeliveries(db, now),
});

function putHook(
  db: Database,
  { project_id, forge, secret }: Pick<HookRecord, 'project_id' | 'forge' | 'secret'>,
  now: number,
): Promise<HookRecord> {
  return db.write(async (tx) => {
    const project = await changingProject(db, tx, project_id);
    const changed = { forge, secret, updated_at: now };
    const row = await tx
      .insertInto('hooks')
      .values({
        project_id,
        ...changed,
        refused: 0,
        look_upto: 0,
        look_tries: 0,
        look_not_before: 0,
        created_at: now,
      })
      .onConflict((oc) => oc.column('project_id').doUpdateSet(changed))
      .returningAll()
      .executeTakeFirstOrThrow();
    await writeEvents(db, tx, [accessEvent(project, 'hook_set', `hook for ${forge} set`, now)]);
    return hookOf(row);
  });
}

async function getHook(db: Database, projectId: string): Promise<HookRecord | null> {
  const row = await db.kysely
    .selectFrom('hooks')
    .selectAll()
    .where('project_id', '=', projectId)
    .executeTakeFirst();
  return row === undefined ? null : hookOf(row);
}

function removeHook(db: Database, projectId: string, now: number): Promise<void> {
  return db.write(async (tx) => {
    const project = await changingProject(db, tx, projectId);
    const gone = await tx
      .deleteFrom('hooks')
      .where('project_id', '=', projectId)
      .returning('forge')
      .executeTakeFirst();
    if (gone === undefined) throw new DomainError('not_found', 'the project has no hook');
    await writeEvents(db, tx, [
      accessEvent(project, 'hook_deleted', `hook for ${gone.forge} deleted`, now),
    ]);
  });
}

function receiveDelivery(
  db: Database,
  projectId: string,
  delivery: NewDelivery,
  now: number,
): Promise<DeliveryRecord | null> {
  return db.write(async (tx) => {
    // Serializes the deliveries of a project, so that each one sees the ones before it.
    const hook = await tx
      .selectFrom('hooks')
      .select('project_id')
      .where('project_id', '=', projectId)
      .$if(db.capabilities.rowLocks, (q) => q.forUpdate())
      .executeTakeFirst();
    if (hook === undefined) return null;
    const row = await tx
      .insertInto('deliveries')
      .values({
        ...(await orRepeated(tx, projectId, delivery, now)),
        project_id: projectId,
        at: now,
      })
      .returningAll()
      .executeTakeFirstOrThrow();
    await limitWaiting(tx, projectId);
    await removeSurplus(tx, projectId, 'others');
    return deliveryOf(row);
  });
}

function refuseDelivery(
  db: Database,
  projectId: string,
  { id, event, reason }: { id: string; event: string; reason: string },
  others: number,
  now: number,
): Promise<void> {
  return db.write(async (tx) => {
    const counted = await tx
      .updateTable('hooks')
      .set((eb) => ({ refused: eb('refused', '+', 1 + others) }))
      .where('project_id', '=', projectId)
      .returning('project_id')
      .executeTakeFirst();
    if (counted === undefined) return;
    await tx
      .insertInto('deliveries')
      .values({ id, project_id: projectId, at: now, event, verdict: 'refused', reason })
      .execute();
    await removeSurplus(tx, projectId, 'refused');
  });
}

async function listHookDeliveries(
  db: Database,
  projectId: string,
  page: Page,
): Promise<Paged<DeliveryRecord>> {
  const after = keyAfter(page.cursor, ['number']);
  const rows = await db.kysely
    .selectFrom('deliveries')
    .selectAll()
    .where('project_id', '=', projectId)
    .$if(after !== null, (q) => q.where('seq', '<', after?.[0] ?? 0))
    .orderBy('seq', 'desc')
    .limit(page.limit + 1)
    .execute();
  return paged(rows, page, (row) => [row.seq], deliveryOf);
}

async function getHookDelivery(
  db: Database,
  projectId: string,
  id: string,
): Promise<DeliveryRecord> {
  const row = await db.kysely
    .selectFrom('deliveries')
    .selectAll()
    .where('id', '=', id)
    .where('project_id', '=', projectId)
    .executeTakeFirst();
  if (row === undefined)
    throw new DomainError('not_found', 'the project has no delivery with this id');
  return deliveryOf(row);
}

function pushesOf(db: Database, projectId: string): Promise<Pushes | null> {
  return db.snapshot(async (tx) => {
    const hook = await tx
      .selectFrom('hooks')
      .selectAll()
      .where('project_id', '=', projectId)
      .executeTakeFirst();
    if (hook === undefined) return null;
    const waiting = await tx
      .selectFrom('deliveries')
      .selectAll()
      .where('project_id', '=', projectId)
      .where('verdict', 'is', null)
      .orderBy('seq')
      .execute();
    return { hook: hookOf(hook), waiting: waiting.map(deliveryOf) };
  });
}

async function waitingPushes(db: Database): Promise<string[]> {
  const rows = await db.kysely
    .selectFrom('deliveries')
    .select('project_id')
    .distinct()
    .where('verdict', 'is', null)
    .execute();
  return rows.map((row) => row.project_id);
}

async function countWaitingPushes(
  db: Database,
): Promise<{ count: number; oldest_at: number | null }> {
  const { count, oldest_at } = await db.kysely
    .selectFrom('deliveries')
    .select((eb) => [eb.fn.countAll<number>().as('count'), eb.fn.min('at').as('oldest_at')])
    .where('verdict', 'is', null)
    .executeTakeFirstOrThrow();
  return { count, oldest_at };
}

async function sweepHookDeliveries(db: Database, now: number): Promise<number> {
  const old = await db.kysely
    .selectFrom('deliveries')
    .select('seq')
    .where('at', '<', now - KEPT_DELIVERY_MS)
    .where('verdict', 'is not', null)
    .orderBy('at')
    .limit(SWEPT_AT_ONCE)
    .execute();
  const seqs = old.map((row) => row.seq);
  if (seqs.length > 0)
    await db.writeOne((kysely) =>
      kysely.deleteFrom('deliveries').where('seq', 'in', seqs).execute(),
    );
  return seqs.length;
}

/**
 * Returns the delivery, marked as skipped if a delivery with the same forge id arrived within
 * REPLAY_MS.
 */
async function orRepeated(
  tx: Tx,
  projectId: string,
  delivery: NewDelivery,
  now: number,
): Promise<NewDelivery> {
  const { forge_id } = delivery;
  if (forge_id === null) return delivery;
  const seen = await tx
    .selectFrom('deliveries')
    .select(['seq', 'at'])
    .where('project_id', '=', projectId)
    .where('forge_id', '=', forge_id)
    .executeTakeFirst();
  if (seen === undefined) return delivery;
  if (seen.at > now - REPLAY_MS) {
    const reason =
      `this delivery already arrived at ${new Date(seen.at).toISOString()}; use redeliver to ` +
      'check the branch again';
    return { ...delivery, forge_id: null, verdict: 'skipped', reason };
  }
  await tx.updateTable('deliveries').set({ forge_id: null }).where('seq', '=', seen.seq).execute();
  return delivery;
}

async function limitWaiting(tx: Tx, projectId: string): Promise<void> {
  const first = await tx
    .selectFrom('deliveries')
    .select('seq')
    .where('project_id', '=', projectId)
    .where('verdict', 'is', null)
    .orderBy('seq', 'desc')
    .offset(MAX_WAITING_DELIVERIES)
    .limit(1)
    .executeTakeFirst();
  if (first === undefined) return;
  await tx
    .updateTable('deliveries')
    .set({ verdict: 'skipped', reason: REPLACED })
    .where('project_id', '=', projectId)
    .where('verdict', 'is', null)
    .where('seq', '<=', first.seq)
    .execute();
}

/**
 * Removes surplus deliveries, oldest first: either refused deliveries, or stored deliveries that
 * have a verdict.
 */
async function removeSurplus(
  tx: Tx,
  projectId: string,
  which: keyof typeof KEPT_DELIVERIES,
): Promise<void> {
  const ended = which === 'refused' ? (['refused'] as const) : (['deployed', 'skipped'] as const);
  const first = await tx
    .selectFrom('deliveries')
    .select('seq')
    .where('project_id', '=', projectId)
    .where('verdict', 'in', ended)
    .orderBy('seq', 'desc')
    .offset(KEPT_DELIVERIES[which])
    .limit(1)
    .executeTakeFirst();
  if (first === undefined) return;
  await tx
    .deleteFrom('deliveries')
    .where('project_id', '=', projectId)
    .where('verdict', 'in', ended)
    .where('seq', '<=', first.seq)
    .execute();
}

/**
 * Writes the part of a plan that concerns hooks. A delivery that already has a verdict keeps it.
 */
export async function changePushes(
  tx: Tx,
  projectId: string,
  { set, verdicts }: Omit<PushChange, 'replaced'>,
): Promise<void> {
  if (Object.keys(set).length > 0)
    await tx.updateTable('hooks').set(set).where('project_id', '=', projectId).execute();
  for (const { delivery_id, ...verdict } of verdicts)
    await tx
      .updateTable('deliveries')
      .set(verdict)
      .where('id', '=', delivery_id)
      .where('project_id', '=', projectId)
      .where('verdict', 'is', null)
      .execute();
}

/**
 * Number of finished `look` tasks to keep for a project, because an agent can send their reports
 * again.
 */
const LOOKS_KEPT = 5;

/**
 * Removes old `look` tasks. Called wherever such tasks are added, so that their number is bounded.
 */
export async function removeOldLooks(tx: Tx, projectId: string): Promise<void> {
  const ended = await tx
    .selectFrom('tasks')
    .select('seq')
    .where('project_id', '=', projectId)
    .where('kind', '=', 'look')
    .where('finished_at', 'is not', null)
    .orderBy('seq', 'desc')
    .offset(LOOKS_KEPT)
    .limit(100)
    .execute();
  const seqs = ended.map((row) => row.seq);
  if (seqs.length > 0) await tx.deleteFrom('tasks').where('seq', 'in', seqs).execute();
}
