/**
 * Writes a plan in one transaction, completely or not at all. Every step is a compare-and-set on
 * the project's version, the state of a deployment, or the attempt of a task. One mismatch makes
 * the whole plan stale, and the flow decides again.
 */
import { defined } from '@berth/kit/defined';
import { failPoint } from '@berth/kit/fail-point';
import { isTerminal } from '@berth/wire/vocabulary';
import type { IdempotencyKey } from '../domain/deployments/flow-store.ts';
import type {
  DeploymentChange,
  NewTask,
  Plan,
  RouteChange,
  TaskChange,
} from '../domain/deployments/plan.ts';
import { DomainError } from '../domain/platform/errors.ts';
import type { DeploymentRecord } from '../domain/platform/records.ts';
import type { Claiming } from './claiming.ts';
import { areBuildsHeld, imagePushed, refuseRemovedImage } from './clean-ups.ts';
import { writeStatuses } from './commit-statuses.ts';
import { refuseUnknownDatasets } from './datasets/dataset-rows.ts';
import { refuseNestedWriters } from './datasets/nested-writers.ts';
import type { Row, Tx } from './engine/tables.ts';
import { type NewEvent, writeEvents } from './events.ts';
import { changePushes, removeOldLooks } from './hooks.ts';
import type { NodeQueryCache } from './memory/node-query-cache.ts';
import { releaseDevices, releaseRemoved, isMemoryFree, moveDevices, takeDevices } from './room.ts';
import { claimReleasePrefix } from './prefixes.ts';
import { afterAll } from './routes.ts';
import { changeInstance } from './instances.ts';
import { writeFileJobs } from './jobs.ts';
import { deploymentColumns } from './rows/deployment.ts';
import { newTaskColumns, payloadWithoutArgs, payloadWithoutEnv } from './rows/task.ts';
import { writeStoryLine } from './story.ts';
import { changeUnmanaged } from './unmanaged.ts';
import { putVolumes } from './volumes.ts';

/** Thrown to roll back the transaction; caught in this file. */
class Stale extends Error {
  override name = 'Stale';
}

export async function commitPlan(
  claiming: Claiming,
  queryCache: NodeQueryCache,
  plan: Plan,
  key: IdempotencyKey | null,
): Promise<'committed' | 'stale'> {
  const { db } = claiming;
  refuseRevival(plan);
  let nodes: string[] = [];
  try {
    await db.write(async (tx) => {
      nodes = [];
      await raiseVersion(tx, plan);
      // In one order, so that two plans do not wait for each other.
      const takes = (plan.takeMemory ?? []).toSorted((a, b) => (a.node_id < b.node_id ? -1 : 1));
      for (const take of takes) if (!(await isMemoryFree(db, tx, take))) throw new Stale();
      if (plan.createDeployment !== null)
        await createDeployment(claiming, tx, plan.createDeployment);
      if (key !== null) await writeKey(tx, plan, key);
      for (const change of retiringFirst(plan.changeDeployments))
        nodes.push(await changeDeployment(tx, plan, change));
      for (const change of plan.changeTasks) await changeTask(tx, plan, change);
      // A clean-up of the registry began after the decision, so the flow must decide again.
      if (plan.createTasks.some((task) => task.kind === 'build') && (await areBuildsHeld(db, tx)))
        throw new Stale();
      for (const task of plan.createTasks) await createTask(tx, plan, task);
      if (plan.route !== null) await changeRoute(tx, plan.route, plan.now);
      if (plan.push !== null) await changePushes(tx, plan.project.id, plan.push);
      for (const copy of plan.volumes) await putVolumes(tx, copy);
      for (const change of plan.instances ?? []) await changeInstance(tx, change);
      if (plan.fileJobs !== undefined)
        await writeFileJobs(tx, plan.project.id, plan.fileJobs, plan.now);
      await changeDevices(tx, plan);
      for (const change of plan.unmanaged ?? []) await changeUnmanaged(tx, change, plan.now);
      await writeStatuses(tx, plan);
      for (const line of plan.storyLines) await writeStoryLine(tx, line, plan.now);
      await writeEvents(db, tx, feedOf(plan));
      await failPoint('commit.before', () => plan.storyLines.at(-1)?.kind ?? 'silent');
    });
    await failPoint('commit.after', () => plan.storyLines.at(-1)?.kind ?? 'silent');
    return 'committed';
  } catch (error) {
    if (error instanceof Stale) return 'stale';
    throw error;
  } finally {
    // Called even after an error, because the commit might have succeeded.
    queryCache.onCommit(plan, nodes);
  }
}

/**
 * Returns events for the feed: one for each line of a story, and one for each change of health that
 * has no such line.
 */
function feedOf({ project, storyLines, changeDeployments, stopped, now }: Plan): NewEvent[] {
  const inStory = new Set(storyLines.map((line) => line.deployment_id));
  const health = changeDeployments.flatMap(({ id, set }) =>
    inStory.has(id) || set.health === undefined || set.health === null
      ? []
      : [{ id, ...set.health }],
  );
  const name =
    stopped === undefined
      ? []
      : [
          {
            kind: stopped.at === null ? 'project.started' : 'project.stopped',
            message: stopped.message,
          },
        ];
  return [
    ...name,
    ...storyLines.map(({ deployment_id, kind, message }) => ({
      deployment_id,
      kind: `deployment.${kind}`,
      message,
    })),
    ...health.map(({ id, status, detail }) => ({
      deployment_id: id,
      kind: 'deployment.health',
      message: detail === null ? status : `${status}: ${detail}`,
    })),
  ].map((event) => ({ ...event, at: now, project_id: project.id }));
}

/**
 * Throws if the plan changes the state of a deployment in a terminal state: this is a bug in the
 * flow.
 */
function refuseRevival(plan: Plan): void {
  for (const { id, from, set } of plan.changeDeployments) {
    if (isTerminal(from) && set.status !== undefined && set.status !== from) {
      throw new Error(
        `a plan would take deployment ${id} from ${from} to ${set.status}, but ${from} is terminal`,
      );
    }
  }
}

/**
 * Increases the project's version. The row lock serializes the plans of one project on both
 * engines.
 */
async function raiseVersion(tx: Tx, plan: Plan): Promise<void> {
  const generation = plan.createDeployment?.generation;
  const row = await tx
    .updateTable('projects')
    .set((eb) => ({
      flow_version: eb('flow_version', '+', 1),
      ...defined({ last_generation: generation }),
      ...defined({
        stopped_at: plan.stopped?.at,
        stopped_by_person: stoppedByPersonOf(plan),
        updated_at: plan.stopped === undefined ? undefined : plan.now,
      }),
    }))
    .where('id', '=', plan.project.id)
    .where('flow_version', '=', plan.project.flow_version)
    .returning('id')
    .executeTakeFirst();
  if (row === undefined) throw new Stale();
}

/** Returns the column; undefined: it does not change. Null while the project is not stopped. */
function stoppedByPersonOf({ stopped }: Plan): number | null | undefined {
  if (stopped === undefined) return undefined;
  return stopped.at === null ? null : Number(stopped.byPerson);
}

async function createDeployment(
  claiming: Claiming,
  tx: Tx,
  deployment: DeploymentRecord,
): Promise<void> {
  const { db } = claiming;
  if (deployment.rollback_of !== null) {
    await refuseRemovedImage(db, tx, deployment.rollback_of);
    await refuseRelease(claiming, tx, deployment);
  }
  await db.capabilities.lockName(tx, `prefix:${deployment.settings.domain_prefix}`);
  // Check the prefix again: the settings of a release can have a domain prefix that a different
  // project has taken since.
  const holder = await tx
    .selectFrom('projects')
    .select('id')
    .where('domain_prefix', '=', deployment.settings.domain_prefix)
    .where('id', '!=', deployment.project_id)
    .executeTakeFirst();
  if (holder !== undefined) throw new DomainError('domain_prefix_taken');
  await tx.insertInto('deployments').values(deploymentColumns(deployment)).execute();
}

/**
 * Checks the settings of a release (a deployment to roll back to) again: they were valid when they
 * were the project's settings, but other rows have changed since.
 */
async function refuseRelease(
  claiming: Claiming,
  tx: Tx,
  { project_id, settings, created_at }: DeploymentRecord,
): Promise<void> {
  const { db } = claiming;
  const { name } = await tx
    .selectFrom('projects')
    .select('name')
    .where('id', '=', project_id)
    .executeTakeFirstOrThrow();
  try {
    await refuseUnknownDatasets(db, tx, settings.datasets);
    await refuseNestedWriters(db, tx, { id: project_id, name }, settings.datasets);
  } catch (error) {
    // The request names a deployment and has no settings, so the answer must not name a field of
    // the settings.
    if (error instanceof DomainError && error.code === 'validation')
      throw new DomainError('no_release', error.message);
    throw error;
  }
  await claimReleasePrefix(claiming, tx, settings.domain_prefix, project_id, created_at);
}

async function writeKey(tx: Tx, plan: Plan, key: IdempotencyKey): Promise<void> {
  if (plan.createDeployment === null)
    throw new Error('the plan has an Idempotency-Key but creates no deployment');
  // Removes expired rows wherever rows are added, so that the table is bounded.
  await tx
    .deleteFrom('idempotency_keys')
    .where('project_id', '=', plan.project.id)
    .where('expires_at', '<=', plan.now)
    .execute();
  const row = await tx
    .insertInto('idempotency_keys')
    .values({ ...key, project_id: plan.project.id, deployment_id: plan.createDeployment.id })
    .onConflict((oc) => oc.columns(['project_id', 'key']).doNothing())
    .returning('key')
    .executeTakeFirst();
  if (row === undefined) throw new Stale();
}

/**
 * Puts the change that retires the old deployment before the change to `running`, because at most
 * one deployment of a project can be `running` at any moment.
 */
const retiringFirst = (changes: readonly DeploymentChange[]): DeploymentChange[] =>
  [...changes].sort(
    (a, b) => Number(a.set.status === 'running') - Number(b.set.status === 'running'),
  );

/** Returns the id of the deployment's current node, or ''. */
async function changeDeployment(
  tx: Tx,
  plan: Plan,
  { id, from, set }: DeploymentChange,
): Promise<string> {
  const row = await tx
    .updateTable('deployments')
    // Sets the state even if it does not change, because an empty SET is invalid SQL.
    .set({ status: from, ...deploymentColumns(set) })
    .where('id', '=', id)
    .where('project_id', '=', plan.project.id)
    .where('status', '=', from)
    .returning('node_id')
    .executeTakeFirst();
  if (row === undefined) throw new Stale();
  const { image_tag, image_digest } = set;
  if (typeof image_tag === 'string' && typeof image_digest === 'string')
    await imagePushed(tx, plan.project.id, { image_tag, image_digest });
  return row.node_id ?? '';
}

/**
 * Number of finished `retire` tasks to keep for a deployment on a node: a container that cannot be
 * removed causes many of them.
 */
const RETIRES_KEPT = 5;

async function createTask(tx: Tx, plan: Plan, task: NewTask): Promise<void> {
  if (task.kind === 'look') await removeOldLooks(tx, plan.project.id);
  if (task.kind === 'retire') {
    // Removes old tasks wherever tasks are added, so that their number is bounded.
    const ended = await tx
      .selectFrom('tasks')
      .select('seq')
      .where('deployment_id', '=', task.deployment_id)
      .where('node_id', '=', task.node_id)
      .where('kind', '=', 'retire')
      .where('finished_at', 'is not', null)
      .execute();
    const surplus = ended
      .map((row) => row.seq)
      .sort((a, b) => b - a)
      .slice(RETIRES_KEPT);
    if (surplus.length > 0) await tx.deleteFrom('tasks').where('seq', 'in', surplus).execute();
  }
  await tx
    .insertInto('tasks')
    .values(newTaskColumns(task, plan.project.id, plan.now))
    .execute();
}

async function changeTask(tx: Tx, plan: Plan, change: TaskChange): Promise<void> {
  const lease = 'end' in change ? change.lease_expires_at : undefined;
  const update = tx
    .updateTable('tasks')
    .where('id', '=', change.id)
    .where('project_id', '=', plan.project.id)
    .where('attempt', '=', change.attempt)
    .$if(lease !== undefined, (q) =>
      q.where('lease_expires_at', 'is not distinct from', lease ?? null),
    )
    .where('finished_at', 'is', null);
  const row =
    'end' in change
      ? await update
          // The lease ends with the task. The token stays, to recognise a report that is sent
          // twice.
          .set({
            status: change.end,
            finished_at: plan.now,
            lease_expires_at: plan.uptime,
            ...defined({
              report: change.report === undefined ? undefined : JSON.stringify(change.report),
            }),
          })
          .returning(['kind', 'payload', 'node_id'])
          .executeTakeFirst()
      : await update
          .set((eb) => ({
            cancel_requested_at: eb.fn.coalesce('cancel_requested_at', eb.val(plan.now)),
          }))
          .returning(['kind', 'payload', 'node_id'])
          .executeTakeFirst();
  if (row === undefined) throw new Stale();
  if (!('end' in change)) return;
  if (row.kind === 'retire' && change.end === 'completed')
    await releaseRemoved(tx, row.node_id, row.payload);
  const payload = payloadToKeep(row);
  if (payload !== null)
    await tx.updateTable('tasks').set({ payload }).where('id', '=', change.id).execute();
}

async function changeDevices(
  tx: Tx,
  { freeDevices: freed = [], moveDevices: moved, takeDevices: taken = [], now }: Plan,
): Promise<void> {
  for (const { node_id, ...gone } of freed) await releaseDevices(tx, node_id, [gone]);
  if (moved !== undefined) await moveDevices(tx, moved);
  if (!(await takeDevices(tx, taken, now))) throw new Stale();
}

async function changeRoute(tx: Tx, change: RouteChange, now: number): Promise<void> {
  if ('remove' in change) {
    await tx.deleteFrom('routes').where('project_id', '=', change.remove.project_id).execute();
    return;
  }
  const { project_id, stopped, published_at, servers = [], ...given } = change.set;
  const others = tx.selectFrom('routes').where('project_id', '!=', project_id);
  const columns = {
    ...given,
    stopped: Number(stopped === true),
    servers: servers.length === 0 ? null : JSON.stringify(servers),
    published_at: published_at === now ? await afterAll(others, now) : published_at,
  };
  await tx
    .insertInto('routes')
    .values({ project_id, ...columns })
    .onConflict((oc) => oc.column('project_id').doUpdateSet(columns))
    .execute();
}

/**
 * Returns a shorter payload for an ended task, without values that are no longer read. Returns null
 * to keep the payload unchanged.
 */
function payloadToKeep({ kind, payload }: Pick<Row<'tasks'>, 'kind' | 'payload'>): string | null {
  if (kind === 'deploy') return payloadWithoutEnv(payload);
  return kind === 'build' ? payloadWithoutArgs(payload) : null;
}
