/**
 * Carries events to the flow: read the facts, decide (flow/deployment.ts), commit, tell who waits; decide again when the
 * project moved on meanwhile. The only place where decisions meet the stores.
 */
import { failPoint } from '@berth/kit/fail-point';
import type { CreatedBy, Trigger } from '@berth/wire/deployment';
import type { TaskReport } from '@berth/wire/task';
import { isOpenTask, isTerminal, LABELS, type TaskState } from '@berth/wire/vocabulary';
import type { Changes, Topic } from '../domain/changes.ts';
import { DomainError, invalid } from '../domain/errors.ts';
import type { Facts, Limits } from '../domain/facts.ts';
import { isEmptyPlan, type Plan } from '../domain/plan.ts';
import type { DeploymentRecord, NodeRecord, ProjectRecord, TaskRecord } from '../domain/records.ts';
import { stableJson } from '../domain/stable-json.ts';
import type { Stores } from '../domain/stores.ts';
import type { Guard } from '../domain/guard.ts';
import { measuredOf, type Telemetry } from '../domain/telemetry.ts';
import { isPast, type UptimeClock } from '../domain/uptime.ts';
import { onDatasetChange, redeploy } from './redeploy.ts';
import { isBehind } from './data.ts';
import { advance, request } from './deployment.ts';
import { newDrain } from './drain.ts';
import type { EventOf, FlowEvent } from './events.ts';
import { holderOfName, judge } from './observe.ts';
import { prewarm } from './prewarm.ts';
import { isStoppedFirst } from './single-writer.ts';

export type DriverDeps = {
  stores: Stores;
  changes: Changes;
  limits: Limits;
  platform: Facts['platform'];
  now: () => number;
  /** The clock of every deadline. */
  uptime: UptimeClock;
  /** Waits before a decision is made anew: `attempt` times others were faster. */
  pause: (attempt: number) => Promise<void>;
  newId: () => string;
  telemetry?: Telemetry;
};

export type NewDeployment = {
  projectId: string;
  commit: string | null;
  note: string | null;
  rollbackOf: string | null;
  /** `earlier`: the same key as an earlier version of Berth wrote it. */
  idempotency: { key: string; earlier?: string; bodyHash: string } | null;
  /** Who asks; unset: nobody says. */
  by?: CreatedBy;
  /** Unset: `api`, or `rollback` where a release is brought back. */
  trigger?: Trigger;
};

export type Driver = {
  /** `created` is false when the Idempotency-Key brought an earlier one. Throws not_found, being_deleted, no_release, idempotency_mismatch, busy. */
  request(input: NewDeployment): Promise<{ deployment: DeploymentRecord; created: boolean }>;
  /** Throws not_found, wrong_state (a cancel that is too late), busy. */
  advance(deploymentId: string, event: FlowEvent): Promise<DeploymentRecord>;
  /** An agent's report. The same one again gets the same answer. Throws not_found, stale_lease, task_over, validation, busy. */
  report(taskId: string, leaseToken: string | null, report: TaskReport): Promise<{ status: TaskState }>;
  /** An unused id, for what is recorded before it is asked for. */
  newId(): string;
  /**
   * What runs, deployed once more under the id that is given, nothing built. Null: it no longer runs, or another deployment of
   * its project is under way. Throws not_found, being_deleted, domain_prefix_taken, busy.
   */
  redeploy(deploymentId: string, input: { id: string; note: string; trigger: Trigger }): Promise<DeploymentRecord | null>;
  /** Tells, or deploys again, what runs on an older version of it, as each project has it; repeated calls have one effect. Throws, when all have been asked, what kept it from one of them. */
  datasetChanged(datasetId: string): Promise<void>;
  /** Has a node copy the newest version of a dataset now. Throws not_found, being_deleted, wrong_state, validation. */
  prewarm(nodeId: string, datasetId: string): Promise<void>;
  /**
   * After a register: what the node's agent saw decides ports, health and what is left over. Gives the names of containers of
   * ours that no deployment here knows: left alone, since a restored database knows too little. `at`: the uptime clock that the register
   * was given; left out: when it was seen.
   */
  observed(node: NodeRecord, at?: number): Promise<readonly string[]>;
  /** Ends every deployment of it; the row goes when its containers are gone (loops/removals.ts). */
  deleteProject(projectId: string, guard?: Guard<ProjectRecord>): Promise<ProjectRecord>;
  /** Without `force` its projects move first, as in a drain. */
  deleteNode(nodeId: string, force: boolean): Promise<NodeRecord>;
  /** Of a node that is being deleted: whatever came to it since ends there, too. Repeated: no change. */
  vacate(nodeId: string): Promise<void>;
};

const KEY_LIFETIME_MS = 24 * 3_600_000;
/** How often a decision is made anew when others keep changing the project. */
const MAX_TRIES = 25;
/** More than any one plan creates: a switch makes two tasks, the deletion of a project one for each deployment. */
const FRESH_IDS = 16;

export function createDriver(deps: DriverDeps): Driver {
  const { stores, changes, limits, platform, now, uptime, pause, newId, telemetry } = deps;

  async function factsOf(projectId: string, release: DeploymentRecord | null = null): Promise<Facts> {
    const read = await stores.flow.facts(
      projectId,
      release?.settings.datasets.map((use) => use.dataset_id),
    );
    return { ...read, now: now(), uptime: await uptime.now(), limits, platform, freshIds: Array.from({ length: FRESH_IDS }, newId) };
  }

  function tell(plan: Plan, facts: Facts): void {
    const touched = [...plan.events.map((e) => e.deployment_id), ...plan.deployments.map((d) => d.id)];
    const topics: Topic[] = touched.map((id): Topic => `logs:${id}`);
    for (const task of plan.createTasks) topics.push(`node:${task.node_id}`);
    for (const change of plan.tasks) {
      const task = facts.tasks.find((t) => t.id === change.id);
      if (task !== undefined) topics.push(`node:${task.node_id}`);
    }
    if (plan.route !== null) topics.push('routes');
    changes.notify(...topics, 'work', 'events');
    for (const measured of measuredOf(plan, facts)) telemetry?.tell(measured);
  }

  type Commit = (plan: Plan) => Promise<'committed' | 'stale'>;
  /** `decide` gives null when, seen with these facts, there is nothing to decide any more. */
  async function commit(
    projectId: string,
    decide: (facts: Facts) => Promise<Plan | null>,
    write: Commit = (p) => stores.flow.commit(p),
    release: DeploymentRecord | null = null,
  ): Promise<void> {
    for (let attempt = 0; attempt < MAX_TRIES; attempt++) {
      if (attempt > 0) await pause(attempt - 1);
      const facts = await factsOf(projectId, release);
      const plan = await decide(facts);
      if (plan === null || isEmptyPlan(plan)) return;
      if ((await write(plan)) === 'committed') return tell(plan, facts);
    }
    throw new DomainError('busy');
  }

  const find = async (facts: Facts, id: string): Promise<DeploymentRecord> =>
    facts.live.find((d) => d.id === id) ?? (await stores.deployments.get(id));

  async function step(deploymentId: string, event: FlowEvent): Promise<void> {
    const { project_id } = await stores.deployments.get(deploymentId);
    await commit(project_id, async (facts) => {
      if (event.type === 'task_lost' && !stillLost(event, facts)) return null;
      return advance(await find(facts, deploymentId), event, facts);
    });
  }

  async function create(input: NewDeployment): Promise<{ deployment: DeploymentRecord; created: boolean }> {
    const { projectId, idempotency } = input;
    const release = input.rollbackOf === null ? null : await releaseOf(input.rollbackOf);
    const id = newId();
    let known: string | null = null;
    const decide = async (facts: Facts): Promise<Plan | null> => {
      if (idempotency !== null) {
        const earlier =
          (await stores.flow.findKey(projectId, idempotency.key, facts.now)) ??
          (idempotency.earlier === undefined ? null : await stores.flow.findKey(projectId, idempotency.earlier, facts.now));
        if (earlier !== null && earlier.body_hash !== idempotency.bodyHash) throw new DomainError('idempotency_mismatch');
        known = earlier?.deployment_id ?? null;
        if (known !== null) return null;
      }
      const { commit: asked, note, by = null, trigger } = input;
      return request({ id, commit: asked, note, release, by, ...(trigger === undefined ? {} : { trigger }) }, facts);
    };
    const write: Commit = (plan) =>
      idempotency === null
        ? stores.flow.commit(plan)
        : stores.flow.commitWithKey(plan, {
            key: idempotency.key,
            body_hash: idempotency.bodyHash,
            expires_at: plan.now + KEY_LIFETIME_MS,
          });
    await commit(projectId, decide, write, release);
    return { deployment: await stores.deployments.get(known ?? id), created: known === null };
  }

  async function releaseOf(deploymentId: string): Promise<DeploymentRecord> {
    try {
      return await stores.deployments.get(deploymentId);
    } catch (error) {
      if (error instanceof DomainError && error.code === 'not_found')
        throw invalid('deployment_id', 'exists', 'there is no such deployment');
      throw error;
    }
  }

  async function report(taskId: string, token: string | null, given: TaskReport): Promise<{ status: TaskState }> {
    const task = await stores.tasks.get(taskId);
    if (task.kind === 'sync') {
      const answer = await stores.tasks.endSync(taskId, token, given, now());
      changes.notify(`node:${task.node_id}`);
      const seconds = task.started_at === null ? null : Math.max(0, now() - task.started_at) / 1000;
      if (isOpenTask(task.status)) telemetry?.tell({ what: 'task', kind: 'sync', end: answer.status, seconds });
      return answer;
    }
    checkReport(task, given);
    await failPoint('report.before', () => task.kind);
    if (!isOpenTask(task.status)) return { status: repeated(task, token, given) };
    checkLease(task, token);
    const { deployment_id, project_id } = task;
    if (deployment_id === null || project_id === null) throw new Error(`task ${taskId} belongs to no deployment`);
    let over = false;
    await commit(project_id, async (facts) => {
      const present = facts.tasks.find((t) => t.id === taskId);
      over = present === undefined;
      if (present === undefined) return null;
      checkLease(present, token);
      return advance(await find(facts, deployment_id), { type: 'task_reported', task: present, report: given }, facts);
    });
    // Ended between our two looks: by the same report on another connection, or by a deadline.
    if (over) return { status: repeated(await stores.tasks.get(taskId), token, given) };
    await failPoint('report.after', () => task.kind);
    return { status: given.status };
  }

  async function deployAgain(
    deploymentId: string,
    input: { id: string; note: string; trigger: Trigger },
  ): Promise<DeploymentRecord | null> {
    const { project_id } = await stores.deployments.get(deploymentId);
    let made = false;
    await commit(
      project_id,
      async (facts) => redeploy(input, await find(facts, deploymentId), facts),
      async (plan) => {
        const answer = await stores.flow.commit(plan);
        made = answer === 'committed';
        return answer;
      },
    );
    return made ? stores.deployments.get(input.id) : null;
  }

  async function datasetChanged(datasetId: string): Promise<void> {
    const version = (await stores.datasets.facts()).find((d) => d.id === datasetId)?.version ?? null;
    const failed: unknown[] = [];
    for (const d of await stores.deployments.runningWith(datasetId)) {
      // Most have been told.
      const pin = d.datasets?.find((p) => p.dataset_id === datasetId);
      if (pin === undefined || !isBehind(pin, version)) continue;
      const id = newId();
      // One project that cannot be decided about must not hold up the others.
      await commit(d.project_id, async (facts) => onDatasetChange(id, d, facts)).catch((error: unknown) => failed.push(error));
    }
    if (failed.length > 0)
      throw failed.length === 1 ? failed[0] : new AggregateError(failed, `${failed.length} projects could not be told`);
  }

  async function observed(node: NodeRecord, at = node.last_seen_at): Promise<readonly string[]> {
    // A register without `containers` says nothing about them.
    if (node.observed_at !== at) return [];
    const seen = new Map(
      node.containers.flatMap((c) =>
        c.labels[LABELS.deployment] === undefined ? [] : [[c.labels[LABELS.deployment] as string, c] as const],
      ),
    );
    const concerned = await stores.deployments.concerning(node, [...seen.keys()]);
    if (concerned === null) return [];
    const { known } = concerned;
    const serving = concerned.serving.filter((d) => !seen.has(d.id));
    if (isSettled(node, seen, known, serving)) concerned.settled();
    for (const d of known) {
      const container = seen.get(d.id) ?? null;
      if (container !== null && asExpected(d, node, container)) continue;
      await step(d.id, { type: 'observed', node_id: node.id, container });
    }
    for (const d of serving) await step(d.id, { type: 'observed', node_id: node.id, container: null });
    for (const { id } of known) seen.delete(id);
    return [...seen.values()].map((c) => c.name);
  }

  /** Work that is under way there is given out again; what runs there is drained, and serves until it has moved. */
  async function vacate(nodeId: string): Promise<void> {
    const open = await stores.deployments.getMany((await stores.deployments.unsettled()).map((d) => d.id));
    for (const d of open)
      if ((d.status === 'building' ? d.builder_id : d.node_id) === nodeId)
        await step(d.id, { type: 'node_deleted', node_id: nodeId, reachable: true });
    const node = await stores.nodes.get(nodeId);
    if (node.drain?.finished_at === null) return;
    const runs = (await stores.deployments.servingOn(nodeId)).some((d) => d.status === 'running');
    if (runs) await stores.nodes.setDrain(nodeId, newDrain(now()), node.drain);
  }

  return {
    request: create,
    async advance(id, event) {
      await step(id, event);
      return stores.deployments.get(id);
    },
    report,
    observed,
    newId,
    redeploy: deployAgain,
    datasetChanged,
    async prewarm(nodeId, datasetId) {
      await prewarm(stores, { id: newId(), nodeId, datasetId }, { now: now(), uptime: await uptime.now() }, limits);
      changes.notify(`node:${nodeId}`);
    },
    async deleteProject(projectId, guard) {
      const project = await stores.projects.markDeleting(projectId, now(), guard);
      await failPoint('project.marked');
      const { live } = await stores.flow.facts(projectId);
      for (const d of live) await step(d.id, { type: 'project_deleted' });
      changes.notify('work');
      return project;
    },
    async deleteNode(nodeId, force) {
      const node = await stores.nodes.markDeleting(nodeId, now());
      await failPoint('node.marked');
      if (!force) await vacate(nodeId);
      else {
        const serving = (await stores.deployments.servingOn(nodeId)).map((d) => d.id);
        const open = (await stores.deployments.unsettled()).map((d) => d.id);
        for (const id of new Set([...serving, ...open])) await step(id, { type: 'node_deleted', node_id: nodeId, reachable: false });
        await stores.nodes.removeIfGone(nodeId, true);
      }
      changes.notify('work', `node:${nodeId}`);
      return force ? node : stores.nodes.get(nodeId);
    },
    vacate,
  };
}

/** Between the reaper's look and ours the task may have been claimed, renewed or ended: then nothing was lost. */
function stillLost({ task, why }: EventOf<'task_lost'>, facts: Facts): boolean {
  const present = facts.tasks.find((t) => t.id === task.id);
  if (present === undefined || present.attempt !== task.attempt) return false;
  const deadline = { queue: present.queue_deadline_at, wall: present.wall_deadline_at, lease: null, attempts: null }[why];
  return isPast(deadline ?? present.lease_expires_at ?? 0, facts.uptime, facts.limits.leaseMs);
}

/** Nothing about it calls for a decision: the common case of every register. */
function asExpected(d: DeploymentRecord, node: NodeRecord, container: NodeRecord['containers'][number]): boolean {
  if (isTerminal(d.status) || d.node_id !== node.id || isStoppedFirst(d)) return false;
  if (d.status !== 'running') return d.route_published_at === null || container.host_port === d.host_port;
  if (container.state === 'running' && container.host_port !== d.host_port) return false;
  const { status, detail } = judge(d, container, { now: node.last_seen_at, retiring: false, holder: holderOfName(node, d) });
  return d.health?.status === status && d.health.detail === detail;
}

/** The same report again calls for nothing, as long as none of these deployments changes; one that is not well may become so by time alone. */
const isSettled = (
  node: NodeRecord,
  seen: ReadonlyMap<string, NodeRecord['containers'][number]>,
  known: readonly DeploymentRecord[],
  serving: readonly DeploymentRecord[],
): boolean =>
  serving.length === 0 &&
  known.length === seen.size &&
  known.every((d) => {
    const container = seen.get(d.id);
    return container !== undefined && d.health?.status !== 'unhealthy' && asExpected(d, node, container);
  });

function checkReport(task: TaskRecord, report: TaskReport): void {
  if (report.status !== 'completed') return;
  if (task.kind === 'build' && typeof report.image_tag !== 'string')
    throw invalid('image_tag', 'required', 'a completed build says which image it pushed');
  if (task.kind === 'deploy' && typeof report.host_port !== 'number')
    throw invalid('host_port', 'required', 'a completed deploy task says which port was assigned');
}

/** A task that was never claimed is an agent's that knows the contract alone: it quotes no lease. */
function checkLease(task: TaskRecord, token: string | null): void {
  if (task.attempt === 0 ? token !== null : token !== task.lease_token) throw new DomainError('stale_lease');
}

/** The answer to a report on a task that has ended. */
function repeated(task: TaskRecord, token: string | null, report: TaskReport): TaskState {
  checkLease(task, token);
  // By content: the same report may come with its fields in another order.
  if (task.report === null || stableJson(task.report) !== stableJson(report))
    throw new DomainError('task_over', `the task is ${task.status}`);
  return task.status;
}
