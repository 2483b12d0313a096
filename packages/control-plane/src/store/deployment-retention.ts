/**
 * Reduces deployments that ended long ago to their record, without log, story, tasks and placement.
 * Keeps the parts that a rollback needs: settings (kept-settings.ts), image, commit, datasets.
 * Keeps the tasks that show how work last ended on each node, for projects with stop-first
 * replacement.
 */
import { isTerminal, TERMINAL_STATES } from '@berth/wire/vocabulary';
import type { EndedWork } from '../domain/deployments/facts.ts';
import type { ProjectSettings } from '../domain/platform/records.ts';
import type { Capabilities } from './engine/capabilities.ts';
import type { Database } from './engine/database.ts';
import type { Tx } from './engine/tables.ts';
import { endedAt, endedWork } from './ended-work.ts';
import { keepSettings } from './kept-settings.ts';
import { removeLogStep } from './log-removal.ts';
import type { FirstProtected } from './first-protected.ts';
import { payloadWithoutEnv } from './rows/task.ts';

const DEPLOYMENTS_PER_PAGE = 200;
const EVENTS_PER_STEP = 200;
const TASKS_PER_STEP = 50;

type Old = { id: string; project_id: string };

/**
 * Returns the number of reduced deployments. `before`: reduces the deployments that ended before
 * this time.
 */
export async function* thinOld(
  db: Database,
  {
    before,
    firstProtected,
    now,
  }: { before: number; firstProtected: FirstProtected; now: () => number },
): AsyncGenerator<void, number, void> {
  let thinned = 0;
  let after: [number, string] = [-1, ''];
  for (;;) {
    const page = await db.kysely
      .selectFrom('deployments')
      .select(['id', 'project_id', 'generation', 'state_since', 'status'])
      .where('thinned_at', 'is', null)
      .where('state_since', '<', before)
      .where((eb) => eb(eb.refTuple('state_since', 'id'), '>', eb.tuple(after[0], after[1])))
      .orderBy('state_since')
      .orderBy('id')
      .limit(DEPLOYMENTS_PER_PAGE)
      .execute();
    for (const row of page) {
      // Filters here: with a condition in the statement, SQLite would use the index of states and
      // sort all deployments that ever ended.
      if (!isTerminal(row.status) || row.generation >= (await firstProtected(row.project_id)))
        continue;
      yield* thin(db, row, now());
      thinned++;
    }
    const last = page.at(-1);
    yield;
    if (last === undefined || page.length < DEPLOYMENTS_PER_PAGE) return thinned;
    after = [last.state_since, last.id];
  }
}

async function* thin(db: Database, old: Old, now: number): AsyncGenerator<void, void, void> {
  for (;;) {
    const done = await db.writeUnsynced((tx) => step(tx, old, now, db.capabilities.packDeployment));
    yield;
    if (done) return;
  }
}

/**
 * Removes some rows of a deployment; resolves with true if only the record is left. Sets the times
 * of removal first, so that readers know that parts are missing.
 */
async function step(
  tx: Tx,
  { id, project_id }: Old,
  now: number,
  pack: Capabilities['packDeployment'],
): Promise<boolean> {
  const row = await tx
    .updateTable('deployments')
    .set((eb) => ({
      story_removed_at: eb.fn.coalesce('story_removed_at', eb.val(now)),
      log_removed_at: eb.fn.coalesce('log_removed_at', eb.val(now)),
      placement: null,
      losses: '[]',
    }))
    .where('id', '=', id)
    .where('thinned_at', 'is', null)
    .where('status', 'in', [...TERMINAL_STATES])
    .returning(['status', 'image_tag', 'route_published_at', 'settings', 'settings_digest'])
    .executeTakeFirst();
  if (row === undefined) return true;
  const parts = [
    await removeLogStep(tx, id),
    await removeEvents(tx, id),
    await removeTasks(tx, id, project_id, now),
  ];
  if (parts.includes(false)) return false;
  const kept =
    row.settings_digest === null
      ? await keepSettings(tx, project_id, settingsToKeep(row))
      : undefined;
  await tx
    .updateTable('deployments')
    .set({ thinned_at: now, ...kept })
    .where('id', '=', id)
    .execute();
  await pack?.(tx, id);
  return true;
}

/** Returns whether a rollback to this deployment is possible. */
const isRelease = (row: {
  status: string;
  image_tag: string | null;
  route_published_at: number | null;
}): boolean =>
  row.status === 'retired' || row.route_published_at !== null || row.image_tag !== null;

/**
 * Returns the settings to keep, without env and build arguments if no rollback to the deployment is
 * possible.
 */
const settingsToKeep = (
  row: Parameters<typeof isRelease>[0] & { settings: string },
): ProjectSettings => {
  const settings = JSON.parse(row.settings) as ProjectSettings;
  return isRelease(row) ? settings : { ...settings, env: {}, build_args: {} };
};

async function removeEvents(tx: Tx, id: string): Promise<boolean> {
  const firstAfterStep = await tx
    .selectFrom('deployment_events')
    .select('id')
    .where('deployment_id', '=', id)
    .orderBy('id')
    .offset(EVENTS_PER_STEP)
    .limit(1)
    .executeTakeFirst();
  await tx
    .deleteFrom('deployment_events')
    .where('deployment_id', '=', id)
    .$if(firstAfterStep !== undefined, (q) => q.where('id', '<', firstAfterStep?.id ?? 0))
    .execute();
  return firstAfterStep === undefined;
}

/**
 * Removes all tasks except the project's newest ones on each node, because decisions use the time
 * at which those ended. Removes env from the remaining tasks.
 */
async function removeTasks(tx: Tx, id: string, projectId: string, now: number): Promise<boolean> {
  const tasks = await tx
    .selectFrom('tasks')
    .select(['seq', 'id', 'kind', 'node_id', 'finished_at', 'lease_expires_at', 'payload'])
    .where('deployment_id', '=', id)
    .where('finished_at', 'is not', null)
    .orderBy('seq')
    .execute();
  const newest = tasks.length === 0 ? [] : await endedWork(tx, projectId, now);
  const needed = tasks.filter((task) => isNewest(task, newest));
  const surplus = tasks.filter((task) => !needed.includes(task)).slice(0, TASKS_PER_STEP);
  if (surplus.length > 0)
    await tx
      .deleteFrom('tasks')
      .where(
        'id',
        'in',
        surplus.map((task) => task.id),
      )
      .execute();
  for (const task of needed)
    if (task.kind === 'deploy')
      await tx
        .updateTable('tasks')
        .set({ payload: payloadWithoutEnv(task.payload) })
        .where('id', '=', task.id)
        .execute();
  return surplus.length + needed.length === tasks.length;
}

const isNewest = (
  task: {
    kind: string;
    node_id: string;
    finished_at: number | null;
    lease_expires_at: number | null;
  },
  newest: readonly EndedWork[],
): boolean =>
  task.kind !== 'build' &&
  newest.some(
    (w) =>
      w.node_id === task.node_id &&
      [w.ended_at, w.claimed_at, w.unreported_at].includes(endedAt(task)),
  );
