/**
 * Makes one decision: reads the facts, decides (flow/deployment.ts), commits the plan, notifies the
 * waiters. Decides again if another request changed the project in between. All decisions are
 * committed through this module.
 */
import { defined } from '@berth/kit/defined';
import type { CacheIndex } from '../domain/nodes/cache-index.ts';
import type { TakenAddresses } from '../domain/nodes/taken-address.ts';
import type { Changes, Topic } from '../domain/platform/changes.ts';
import { DomainError } from '../domain/platform/errors.ts';
import type { Facts, Limits } from '../domain/deployments/facts.ts';
import { isEmptyPlan, type Plan } from '../domain/deployments/plan.ts';
import type { DeploymentRecord } from '../domain/platform/records.ts';
import type { FlowStores } from './flow-stores.ts';
import { measuredOf, type Telemetry } from '../domain/platform/telemetry.ts';
import { isPast, type UptimeClock } from '../domain/platform/uptime.ts';
import { advance } from './deployment.ts';
import type { EventOf, FlowEvent } from './events.ts';

export type DriverDeps = {
  stores: FlowStores;
  changes: Changes;
  limits: Limits;
  platform: Facts['platform'];
  now: () => number;
  /** The clock for all deadlines. */
  uptime: UptimeClock;
  /**
   * Waits with backoff before a stale decision is repeated. `attempt` counts the repetitions from
   * 0.
   */
  pause: (attempt: number) => Promise<void>;
  newId: () => string;
  /** The cache index, shared with the API's placement. */
  cacheIndex: CacheIndex;
  /** Nodes that get no new work while others can take it (domain/nodes/failover-watch.ts). */
  overdue?: () => ReadonlySet<string>;
  /** Silent nodes whose address another machine has now. */
  takenAddresses?: () => TakenAddresses;
  telemetry?: Telemetry;
};

/** Returns a plan, or null if these facts require no change. Runs once in each attempt. */
type Decision = (facts: Facts, release: DeploymentRecord | null) => Promise<Plan | null>;
export type Write = (plan: Plan) => Promise<'committed' | 'stale'>;

export type Decider = {
  /**
   * Decides and commits until the facts are not stale. `write` replaces the plain commit. `release`
   * is called before each decision; the facts include the datasets of that release. Throws busy
   * after MAX_TRIES stale decisions.
   */
  decide(
    projectId: string,
    decision: Decision,
    options?: { write?: Write; release?: () => Promise<DeploymentRecord | null> },
  ): Promise<void>;
  /** Applies an event to a deployment. */
  advance(deploymentId: string, event: FlowEvent): Promise<void>;
  /** Returns the deployment from the facts, or from the store if it is terminal. */
  find(facts: Facts, deploymentId: string): Promise<DeploymentRecord>;
};

/** Maximum number of attempts at a decision while other requests keep changing the project. */
const MAX_TRIES = 25;
/**
 * Number of fresh ids for one plan, more than any plan uses: a replacement creates two tasks, and
 * the deletion of a project creates one task per deployment. Each further instance can need an id,
 * a deploy task and a retire task.
 */
const FRESH_IDS = 16;
const FRESH_IDS_OF_INSTANCE = 3;

export function createDecider(deps: DriverDeps): Decider {
  const { stores, limits, platform, now, uptime, pause, newId, cacheIndex } = deps;

  async function factsOf(projectId: string, release: DeploymentRecord | null): Promise<Facts> {
    const read = await stores.flow.facts(
      projectId,
      release?.settings.datasets.map((use) => use.dataset_id),
    );
    const wanted = read.project.processes.reduce((sum, { count = 1 }) => sum + count, 0);
    const others = Math.max(0, wanted - 1) + (read.instances?.length ?? 0);
    const freshIds = Array.from({ length: FRESH_IDS + others * FRESH_IDS_OF_INSTANCE }, newId);
    return {
      ...read,
      now: now(),
      uptime: await uptime.now(),
      limits,
      platform,
      cacheIndex,
      ...defined({ overdue: deps.overdue?.(), takenAddresses: deps.takenAddresses?.() }),
      freshIds,
    };
  }

  const decider: Decider = {
    async decide(
      projectId,
      decision,
      { write = (plan: Plan) => stores.flow.commit(plan), release = async () => null } = {},
    ) {
      for (let attempt = 0; attempt < MAX_TRIES; attempt++) {
        if (attempt > 0) await pause(attempt - 1);
        const again = await release();
        const facts = await factsOf(projectId, again);
        // Read the release again after the facts: the first read lacks a change made between the
        // two reads, and the stale check would not detect it.
        const present = again === null ? null : await release();
        if (present?.id !== again?.id) continue;
        const plan = await decision(facts, present);
        if (plan === null || isEmptyPlan(plan)) return;
        if ((await write(plan)) === 'committed') return notify(deps, plan, facts);
      }
      throw new DomainError('busy');
    },
    async advance(deploymentId, event) {
      const { project_id } = await stores.deployments.get(deploymentId);
      await decider.decide(project_id, async (facts) => {
        if (event.type === 'task_lost' && !isStillLost(event, facts)) return null;
        return advance(await decider.find(facts, deploymentId), event, facts);
      });
    },
    find: async (facts, deploymentId) =>
      facts.live.find((d) => d.id === deploymentId) ?? (await stores.deployments.get(deploymentId)),
  };
  return decider;
}

/** Notifies the waiters of each change in the plan, and counts the changes for Prometheus. */
function notify({ changes, telemetry }: DriverDeps, plan: Plan, facts: Facts): void {
  const changed = [
    ...plan.storyLines.map((e) => e.deployment_id),
    ...plan.changeDeployments.map((d) => d.id),
  ];
  const topics: Topic[] = changed.map((id): Topic => `logs:${id}`);
  for (const task of plan.createTasks) topics.push(`node:${task.node_id}`);
  for (const change of plan.changeTasks) {
    const task = facts.tasks.find((t) => t.id === change.id);
    if (task !== undefined) topics.push(`node:${task.node_id}`);
  }
  if (plan.route !== null) topics.push('routes');
  changes.notify(...topics, 'work', 'events');
  for (const measured of measuredOf(plan, facts)) telemetry?.emit(measured);
}

/**
 * Returns whether the task is still lost. An agent might have claimed, renewed or ended it after
 * the reaper read it.
 */
export function isStillLost(
  { task, why }: Pick<EventOf<'task_lost'>, 'task' | 'why'>,
  facts: Facts,
): boolean {
  const present = facts.tasks.find((t) => t.id === task.id);
  if (present === undefined || present.attempt !== task.attempt) return false;
  const deadline = {
    queue: present.queue_deadline_at,
    wall: present.wall_deadline_at,
    lease: null,
    attempts: null,
  }[why];
  return isPast(deadline ?? present.lease_expires_at ?? 0, facts.uptime, facts.limits.leaseMs);
}
