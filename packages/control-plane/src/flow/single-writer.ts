/**
 * Ensures that a stop-first project (`recreate`: a dataset is mounted readwrite) never runs two
 * versions at once, on any nodes. On one node the agent ensures it. This file decides between
 * nodes:
 *
 *   placement keeps the project on its node          ──▶ nothing to do
 *   else: the containers of another node are unknown ──▶ wait: a container might still write there
 *         another node runs its containers           ──▶ stop and keep them, and wait until the node reports them stopped
 *         no other node runs its containers          ──▶ start the new version
 *   the new version fails after the old one was stopped ──▶ restart the old one as soon as no other container can be writing
 *
 * The decision uses the open tasks of a node, how its earlier tasks ended (Facts.endedWork), and
 * its reported containers if that report is newer. If the machine of a silent node reports as
 * another node, that report decides (domain/nodes/renamed-machine.ts). A contract-only agent
 * reports no containers and stops only the container with the name of the new one. Any other
 * container that it started blocks the new version until an admin confirms that the container is
 * gone (domain/nodes/unmanaged-containers.ts) or the node is deleted. Pure.
 */
import { LABELS } from '@berth/wire/vocabulary';
import type { ObservedContainer } from '@berth/wire/node';
import type { DeployPayload, TaskReport } from '@berth/wire/task';
import { finalName } from '../domain/projects/container-name.ts';
import { presentNode } from '../domain/nodes/renamed-machine.ts';
import { isOnline } from '../domain/nodes/placement.ts';
import { currentCopy } from '../domain/data/volumes.ts';
import type { NodeFact } from '../domain/deployments/facts.ts';
import {
  waitingFor,
  type WaitReason,
  waitsFor,
  waitText,
} from '../domain/deployments/wait-reason.ts';
import type { DeploymentRecord, TaskRecord } from '../domain/platform/records.ts';
import { type Draft, isBerthAgent } from './plan-draft.ts';
import { createAgain, isCreation } from './creation.ts';
import { isFirstLost } from './instance-route.ts';
import {
  isSameContainer,
  isStoppedContainer,
  observedAt,
  ofProject,
} from './reported-containers.ts';
import { mayTry } from './retry.ts';
import { isProjectStopped, isStopping, restReason } from './stop.ts';
import { createRetireTask } from './tasks.ts';
import { endMove } from './volumes.ts';

/**
 * Returns whether Berth asked the running version to stop: for a newer version (Berth restarts the
 * old one if the newer one fails), or because the project is stopped (flow/stop.ts).
 */
export const isStoppedFirst = (d: Pick<DeploymentRecord, 'status' | 'stopped_first'>): boolean =>
  d.status === 'running' && d.stopped_first !== null;

type NodeState =
  | { is: 'clear' }
  /** Wait: a task is open on the node. Its agent will report the end, or the lease will expire. */
  | { is: 'busy'; why: WaitReason }
  | { is: 'unknown'; why: WaitReason }
  | { is: 'runs'; containers: ObservedContainer[] };

/** Maximum number of nodes on which one plan stops containers. */
const MAX_STOPS = 8;

/**
 * Containers that the current report shows as removed. `gone`: ids of deployments that have no
 * container on the node any more.
 */
export type Removal = { node_id: string; gone: readonly string[] };

function stateOf(draft: Draft, node: NodeFact, removal: Removal | null = null): NodeState {
  const gone = removal?.node_id === node.id ? removal.gone : null;
  const { project, live, endedWork, limits } = draft.facts;
  const work = endedWork.find((w) => w.node_id === node.id);
  const runs = ofProject(node, project.id).filter(
    (c) => !isStoppedContainer(c) && gone?.includes(c.labels[LABELS.deployment] ?? '') !== true,
  );
  const serves = live.find((o) => o.status === 'running' && o.node_id === node.id);
  const busy = hasOpenWork(draft, node.id);
  const unmanaged = stillThere(draft, node, null);
  if (unmanaged !== null) return { is: 'unknown', why: unmanaged };
  if (
    work === undefined &&
    runs.length === 0 &&
    serves === undefined &&
    !busy &&
    !losesTask(draft, node.id)
  )
    return { is: 'clear' };
  if (!isBerthAgent(node)) {
    // An admin confirmed that each container that the agent might have started is gone.
    const isEmptied = draft.facts.unmanaged?.some((c) => c.node_id === node.id) === true;
    if (isEmptied && !busy && !losesTask(draft, node.id)) return { is: 'clear' };
    return {
      is: 'unknown',
      why: { kind: 'contract_only_agent', node: node.hostname },
    };
  }
  if (busy && !isOnline(node, draft.facts.now, limits))
    return { is: 'unknown', why: mayWrite(node) };
  if (busy) return { is: 'busy', why: { kind: 'still_works', node: node.hostname } };
  if (losesTask(draft, node.id)) return { is: 'unknown', why: mayWrite(node) };
  const reporter = presentNode(node, draft.facts.nodes, limits.offlineMs);
  if (!hasCleanedUp(draft, node.id, reporter)) return { is: 'unknown', why: mayWrite(node) };
  // Ignore a task that no agent claimed, because it started no container.
  const claimedAt = work?.claimed_at ?? null;
  if (claimedAt !== null && observedAt(draft, reporter) <= claimedAt && gone === null)
    return { is: 'unknown', why: mayWrite(node) };
  if (gone === null && isTooOld(draft, node, reporter, claimedAt))
    return { is: 'unknown', why: mayWrite(node) };
  // The machine now reports as another node: its containers are in the list of that node.
  if (reporter !== node) return { is: 'clear' };
  // A container that exited by itself can run again: the engine or the agent can restart it. Only a
  // container that Berth stopped stays stopped.
  const ended = ofProject(node, project.id).filter(
    (c) =>
      serves !== undefined &&
      c.labels[LABELS.deployment] === serves.id &&
      isStoppedContainer(c) &&
      serves.stopped_first !== 'stopped',
  );
  const containers = [...runs, ...ended];
  if (containers.length === 0) return { is: 'clear' };
  return isOnline(node, draft.facts.now, limits)
    ? { is: 'runs', containers }
    : { is: 'unknown', why: mayWrite(node) };
}

/**
 * Returns whether the list of the machine lacks a container of the running version that a task
 * started on the node, and might be older than that container: it was sent before and arrived late.
 * `claimedAt`: end of the node's last task that an agent had claimed.
 */
function isTooOld(
  draft: Draft,
  node: NodeFact,
  reporter: NodeFact,
  claimedAt: number | null,
): boolean {
  const running = draft.facts.live.find((o) => o.status === 'running');
  if (running === undefined || running.stopped_first === 'stopped') return false;
  if (isListedAfter(reporter, claimedAt)) return false;
  const listed = ofProject(reporter, running.project_id).filter(
    (c) => c.labels[LABELS.deployment] === running.id,
  );
  return [running, ...draft.instances(running), ...draft.workers(running)].some(
    (one) =>
      one.node_id === node.id &&
      one.container_id !== null &&
      !listed.some((c) => c.id === undefined || isSameContainer(one, c)),
  );
}

/** Returns whether the node made its last list after the end of a task; null: of no task. */
const isListedAfter = ({ observed_since }: NodeFact, endedAt: number | null): boolean =>
  endedAt === null || (observed_since ?? Number.NEGATIVE_INFINITY) > endedAt;

/**
 * Returns the reason to wait if a container that Berth does not control might write on the node, or
 * null. `replaced`: name of a container that the agent removes, which is ignored.
 */
function stillThere({ facts }: Draft, node: NodeFact, replaced: string | null): WaitReason | null {
  const unmanaged = facts.unmanaged?.find(
    (c) => c.node_id === node.id && c.confirmed_at === null && c.container !== replaced,
  );
  return unmanaged === undefined
    ? null
    : { kind: 'unmanaged_container', container: unmanaged.container, node: node.hostname };
}

/**
 * Returns whether no lost task of the node can still start a container. At its next poll the agent
 * learns that it lost the task, and cleans up within the duration of a lease.
 */
function hasCleanedUp(draft: Draft, nodeId: string, reporter: NodeFact): boolean {
  const unreportedAt =
    draft.facts.endedWork.find((w) => w.node_id === nodeId)?.unreported_at ?? null;
  if (unreportedAt === null) return true;
  return (
    observedAt(draft, reporter) > unreportedAt + draft.facts.limits.leaseMs &&
    polledAt(draft, reporter) > unreportedAt
  );
}

/**
 * Returns the time of the node's last poll, converted from the machine's clock to the uptime clock.
 * A time in the future counts as never: the clock was set back after the poll.
 */
const polledAt = ({ facts }: Draft, { last_polled_at }: NodeFact): number =>
  last_polled_at === null || last_polled_at > facts.now
    ? Number.NEGATIVE_INFINITY
    : facts.uptime.at - (facts.now - last_polled_at);

const mayWrite = (node: NodeFact): WaitReason => ({
  kind: 'stop_unconfirmed',
  node: node.hostname,
});

/**
 * Returns whether the node has an open task that can affect containers, including tasks that this
 * plan creates.
 */
export const hasOpenWork = ({ facts, plan }: Draft, nodeId: string): boolean =>
  plan.createTasks.some((t) => t.node_id === nodeId) ||
  facts.tasks.some(
    (t) =>
      t.node_id === nodeId &&
      t.kind !== 'build' &&
      !plan.changeTasks.some((c) => c.id === t.id && 'end' in c),
  );

/**
 * Returns whether this plan ends a task that an agent claimed and did not report, or whose report
 * says that the container could not be removed. Ignores moves, which start no container.
 */
const losesTask = ({ facts, plan }: Draft, nodeId: string): boolean =>
  facts.tasks.some(
    (t) =>
      t.node_id === nodeId &&
      t.kind !== 'build' &&
      t.kind !== 'move' &&
      t.attempt > 0 &&
      plan.changeTasks.some(
        (c) => c.id === t.id && 'end' in c && (c.report === undefined || leavesContainer(c.report)),
      ),
  );

const leavesContainer = ({ status, container_id }: TaskReport): boolean =>
  status === 'failed' && typeof container_id === 'string';

const isStart = (task: TaskRecord): boolean =>
  task.kind === 'retire' && 'start' in task.payload && typeof task.payload.start === 'string';

export type StartDelay = {
  reason: WaitReason;
  /** The deployment waits for a task of Berth, so the queue timer stops. */
  isOwnWork: boolean;
};

/**
 * Returns why the new version must not start on `target` yet, or null if it can start. Stops the
 * containers on other nodes, but none if the state of one node is unknown, so that the old version
 * keeps serving.
 */
export function reasonToWait(
  draft: Draft,
  d: DeploymentRecord,
  target: NodeFact,
): StartDelay | null {
  const serves = draft.facts.live.find((o) => o.status === 'running');
  const isRestart = (t: TaskRecord): boolean => isStart(t) || isCreation(t, serves);
  if (draft.facts.tasks.some((t) => t.node_id === target.id && isRestart(t)))
    return {
      reason: { kind: 'restarting_previous', node: target.hostname },
      isOwnWork: true,
    };
  const here = stillThere(draft, target, isBerthAgent(target) ? null : finalName(d.settings));
  if (here !== null) return { reason: here, isOwnWork: false };
  const others = draft.facts.nodes
    .filter((node) => node.role === 'deploy' && node.id !== target.id)
    .map((node) => ({ node, state: stateOf(draft, node) }));
  for (const { state } of others)
    if (state.is === 'unknown') return { reason: state.why, isOwnWork: false };
  for (const { state } of others)
    if (state.is === 'busy') return { reason: state.why, isOwnWork: true };
  const running = others.flatMap(({ node, state }) =>
    state.is === 'runs' ? [{ node, containers: state.containers }] : [],
  );
  if (running.length === 0) return null;
  // The containers on the other nodes are stopped after these.
  const first = running.slice(0, MAX_STOPS);
  for (const { node, containers } of first) stop(draft, d, node, containers);
  return {
    reason: {
      kind: 'stopping_containers',
      nodes: first.map(({ node }) => node.hostname),
      others: running.length - first.length,
    },
    isOwnWork: true,
  };
}

function stop(
  draft: Draft,
  d: DeploymentRecord,
  node: NodeFact,
  containers: readonly ObservedContainer[],
): void {
  const reason = `deployment ${d.generation} starts on another node`;
  const ids = [...new Set(containers.flatMap((c) => c.labels[LABELS.deployment] ?? []))];
  createRetireTask(draft, node, {
    of: d,
    remove: [],
    keep: null,
    drain: false,
    stop: ids.map((deployment_id) => ({ deployment_id, reason })),
  });
  const old = draft.facts.live.find(
    (o) => o.status === 'running' && o.node_id === node.id && ids.includes(o.id),
  );
  if (old === undefined || isStoppedFirst(old)) return;
  draft.set(old, {
    stopped_first: 'asked',
    ...waitingFor({ kind: 'asked_to_stop', generation: d.generation }),
  });
  draft.addLine(
    old,
    'stopped_first',
    `asked to stop before ${reason}: two versions must never write at once`,
  );
}

/**
 * Records that a deploy task with stop-first stopped the running version on its own node
 * (`completed`), or may have stopped it: an agent that lost the task starts nothing again.
 * `restartStopped` starts that version if the newer one does not go live, and clears the record if
 * it still runs.
 */
export function stoppedByTask(
  draft: Draft,
  d: DeploymentRecord,
  { node_id, attempt, payload }: TaskRecord,
  end: 'completed' | 'unknown',
): void {
  if (attempt === 0 || (payload as DeployPayload).replace !== 'recreate') return;
  const old = draft.facts.live.find(
    (o) => o.id !== d.id && o.status === 'running' && o.node_id === node_id,
  );
  if (old === undefined || isStoppedFirst(old) || !isBerthAgent(draft.node(node_id))) return;
  draft.set(old, {
    stopped_first: end === 'completed' ? 'stopped' : 'asked',
    ...waitingFor({ kind: 'stopped_first' }),
  });
}

/** Records that the node has stopped the running version. */
export function markStopped(draft: Draft, nodeId: string, ids: readonly string[]): void {
  const old = draft.facts.live.find(
    (o) => o.node_id === nodeId && isStoppedFirst(o) && ids.includes(o.id),
  );
  if (old !== undefined)
    draft.set(old, {
      stopped_first: 'stopped',
      ...waitingFor(isProjectStopped(draft) ? restReason(draft) : { kind: 'stopped_first' }),
    });
}

/**
 * Restarts the version that was stopped for a newer version that failed, as soon as no other
 * container can be writing. Called after each event that can make this possible: a deployment ends
 * (`leaving`), a task ended, or the node reported.
 */
export function restartStopped(
  draft: Draft,
  { leaving = null, removal = null }: { leaving?: string | null; removal?: Removal | null } = {},
): void {
  const stopped = stoppedVersion(draft);
  if (stopped === null) return;
  const { old, home } = stopped;
  const { live } = draft.facts;
  // Do not restart the old version: a newer version might still go live. If the newer version ends
  // instead, this function runs again.
  if (live.some((o) => o.id !== leaving && (o.status === 'built' || o.status === 'deploying')))
    return;
  // Its node is lost, and it does not wait for that node: it starts elsewhere (flow/lost-instance.ts).
  if (isFirstLost(old)) return draft.set(old, { stopped_first: null, ...waitingFor(null) });
  const data = old.settings.volumes.length === 0 ? null : currentCopy(draft.volumes());
  if (data !== null && data.node_id !== home.id) {
    // The newer version might have written to the volumes on the other node, so do not restart with
    // the old copy.
    const reason: WaitReason = { kind: 'volumes_elsewhere', node: data.hostname };
    if (waitsFor(old, reason)) return;
    draft.set(old, waitingFor(reason));
    return draft.addLine(old, 'stopped_first', waitText(reason));
  }
  const ownContainer = ofProject(home, draft.facts.project.id).find(
    (c) => c.labels[LABELS.deployment] === old.id,
  );
  const claimedAt = draft.facts.endedWork.find((w) => w.node_id === home.id)?.claimed_at ?? null;
  const isReportNew = !losesTask(draft, home.id) && observedAt(draft, home) > (claimedAt ?? 0);
  const isGone = isReportNew && ownContainer === undefined;
  // Clear `stopped_first`: the container never stopped, or another instance takes over.
  const servesOn = isGone
    ? draft.instances(old).some(({ state }) => state === 'serving')
    : isReportNew && ownContainer !== undefined && !isStoppedContainer(ownContainer);
  if (servesOn) {
    // Until its agent has noticed the loss, a lost task can still stop the container. So can one that
    // the node has not ended, be it of a version that has ended.
    if (!isHomeCleanedUp(draft, home) || isStopping(draft, old)) return;
    // The node reported that it stopped. A list that arrived late can be from before the stop.
    const isStopped = asPlanned(draft, old).stopped_first === 'stopped';
    if (isStopped && !isGone && !isListedAfter(home, claimedAt)) return;
    return draft.set(old, { stopped_first: null, ...waitingFor(null) });
  }
  const why = whyNotRestart(draft, stopped, removal);
  if (why !== null) {
    const reason: WaitReason = { kind: 'not_restarted', because: why };
    if (waitsFor(old, reason)) return;
    draft.set(old, waitingFor(reason));
    return draft.addLine(
      old,
      'stopped_first',
      `stays stopped on ${home.hostname} for now: ${waitText(why)}`,
    );
  }
  if (!mayTry(draft, old)) return;
  endMove(draft, old, `the project starts again on ${home.hostname}`);
  if (isGone) return createAgain(draft, old, home);
  createRetireTask(draft, home, { of: old, remove: [], keep: null, drain: false, start: old.id });
  draft.addLine(
    old,
    'started_again',
    `the newer version did not go live; this one is restarted on ${home.hostname}`,
  );
}

/** Returns the deployment with the changes of this plan. */
const asPlanned = ({ plan }: Draft, d: DeploymentRecord): DeploymentRecord => ({
  ...d,
  ...plan.changeDeployments.find((c) => c.id === d.id)?.set,
});

type StoppedVersion = { old: DeploymentRecord; home: NodeFact };

/**
 * Returns the version that was stopped for a newer version, with its node. Returns null if the node
 * cannot restart it or works on a task.
 */
function stoppedVersion(draft: Draft): StoppedVersion | null {
  if (isProjectStopped(draft)) return null;
  const old = draft.facts.live.find((o) => isStoppedFirst(asPlanned(draft, o)));
  const home = draft.node(old?.node_id ?? null);
  return old === undefined ||
    home === undefined ||
    !isBerthAgent(home) ||
    hasOpenWork(draft, home.id)
    ? null
    : { old, home };
}

/**
 * Returns whether the node of the volumes could now restart the version that was stopped for a
 * newer version.
 */
export function canRestart(draft: Draft): boolean {
  const stopped = stoppedVersion(draft);
  // During the backoff after a failed restart, the end of the newer version would not restart the
  // old one.
  if (stopped === null || !mayTry(draft, stopped.old)) return false;
  const data = stopped.old.settings.volumes.length === 0 ? null : currentCopy(draft.volumes());
  return (
    (data === null || data.node_id === stopped.home.id) &&
    whyNotRestart(draft, stopped, null) === null
  );
}

/** Returns why any version except this one might still run, on any node, or null. */
export function whyNotRestart(
  draft: Draft,
  { old, home }: StoppedVersion,
  removal: Removal | null,
): WaitReason | null {
  // A version that stopped for lack of room (flow/room.ts) shares no data with the newer one.
  const isForRoom = old.settings.replace === 'rolling' && draft.facts.project.replace === 'rolling';
  for (const node of draft.facts.nodes) {
    if (node.role !== 'deploy' || (isForRoom && node.id !== home.id)) continue;
    const why =
      node.id === home.id
        ? besides(draft, old, home, removal)
        : mayRun(node, stateOf(draft, node, removal), (c) => isOtherInstance(draft, old, c));
    if (why !== null) return why;
  }
  return null;
}

const stillRuns = (node: NodeFact): WaitReason => ({ kind: 'still_runs', node: node.hostname });

/** `isIgnored`: returns whether a container may run beside the version that restarts. */
function mayRun(
  node: NodeFact,
  state: NodeState,
  isIgnored: (container: ObservedContainer) => boolean,
): WaitReason | null {
  if (state.is === 'clear' || (state.is === 'runs' && state.containers.every(isIgnored)))
    return null;
  return state.is === 'runs' ? stillRuns(node) : state.why;
}

/**
 * Returns whether the container is that of another instance or of a worker of the same version. A
 * project with one writer has one instance, so none of its containers is ignored.
 */
const isOtherInstance = (
  draft: Draft,
  old: DeploymentRecord,
  container: ObservedContainer,
): boolean =>
  container.labels[LABELS.deployment] === old.id &&
  [...draft.instances(old), ...draft.workers(old)].some((one) => isSameContainer(one, container));

/**
 * Returns why a different version might run on the node of the stopped version, or null. A restart
 * does not stop the containers of other versions.
 */
function besides(
  draft: Draft,
  old: DeploymentRecord,
  home: NodeFact,
  removal: Removal | null,
): WaitReason | null {
  const gone = removal?.node_id === home.id ? removal.gone : [];
  const others = ofProject(home, draft.facts.project.id).filter((c) => {
    const id = c.labels[LABELS.deployment] ?? '';
    return id !== old.id && !gone.includes(id) && !isStoppedContainer(c);
  });
  if (others.length > 0) return stillRuns(home);
  const unmanaged = stillThere(draft, home, null);
  if (unmanaged !== null) return unmanaged;
  return isHomeCleanedUp(draft, home) ? null : mayWrite(home);
}

/**
 * Returns whether no lost task of the node can still start or stop a container. Accepts a poll time
 * in the future (the clock was set back): the agent polls anyway before it gets the restart.
 */
function isHomeCleanedUp(draft: Draft, home: NodeFact): boolean {
  const { now } = draft.facts;
  const isAhead = home.last_polled_at !== null && home.last_polled_at > now;
  const polled = isAhead ? { ...home, last_polled_at: now } : home;
  return !losesTask(draft, home.id) && hasCleanedUp(draft, home.id, polled);
}
