/**
 * Decides about the instances of a deployment beside its first one. The first instance is the
 * deployment itself; with one instance this file changes nothing.
 *
 *   assign ──▶ starting ──its task reports──▶ serving ──its container ends──▶ unhealthy ──it answers──▶ serving
 *                │ the node fails                 │ its node is silent (FAILOVER_AFTER)
 *                ▼                                ▼
 *              another node, or waiting         lost: a replacement starts on another node
 *
 *   serving ──it is not wanted any more──▶ draining ──the proxy has the new route──▶ its container ends
 *
 * A new version goes live when all its instances answer, with one change of the route. Later, the
 * route lists each instance that serves. When the first instance is lost and another one serves,
 * the two change places (`promote`). Beside this file: `instance-route` (addresses, the first one),
 * `observed-instance` (reports of nodes), `lost-instance` (the event `node_lost`). Pure.
 */
import { hasWeb } from '@berth/wire/project';
import { defined } from '@berth/kit/defined';
import type { DatasetMount } from '@berth/wire/dataset';
import type { Placement } from '@berth/wire/node';
import type { DeployPayload } from '@berth/wire/task';
import { mountsOf } from '../domain/data/mounts.ts';
import type { NodeFact } from '../domain/deployments/facts.ts';
import {
  freeNumbers,
  type InstanceRecord,
  isMovable,
  isWanted,
  replacementOf,
  wantedNumbers,
  WEB,
} from '../domain/deployments/instance.ts';
import { instanceNeed } from '../domain/nodes/build-needs.ts';
import { type Choice, chooseMore, type Question } from '../domain/nodes/placement.ts';
import { refusalsText } from '../domain/nodes/refusal.ts';
import { deviceIds } from '../domain/nodes/room.ts';
import type {
  DeploymentRecord,
  Failure,
  NodeLoss,
  TaskRecord,
} from '../domain/platform/records.ts';
import type { EventOf } from './events.ts';
import { failure, failureOf } from './failure.ts';
import {
  isFirstLost,
  nameOf,
  presentOf,
  promote,
  publishServers,
  replaces,
  wantedCount,
} from './instance-route.ts';
import { questionAgain } from './placement-question.ts';
import { type Draft, isBerthAgent } from './plan-draft.ts';
import { holderOfAddress } from './route.ts';
import { addKeptDevices, freeDevicesOf, takeRoomOfOther } from './room.ts';
import { isAtRest, isProjectStopped } from './stop.ts';
import { createDeployTask, createRetireTask } from './tasks.ts';

/** Returns how many instances each node has, with the first one. */
function takenBy(draft: Draft, d: DeploymentRecord): Map<string, number> {
  const taken = new Map<string, number>();
  const nodes = [
    isFirstLost(d) ? null : d.node_id,
    ...draft
      .instances(d)
      .filter(isWanted)
      .map(({ node_id }) => node_id),
  ];
  for (const id of nodes) if (id !== null) taken.set(id, (taken.get(id) ?? 0) + 1);
  return taken;
}

/** The nodes for the further instances. */
export type OtherPlaces = {
  choices: readonly Choice[];
  /** The first choice without a node; null if each instance has one. */
  lacking: Choice | null;
};

/**
 * Chooses the nodes of all further instances; the first one goes to `first`. A further instance
 * needs an agent with the capability `instances`.
 */
export function placeOthers(
  draft: Draft,
  d: DeploymentRecord,
  question: Question,
  first: NodeFact,
): OtherPlaces {
  const count = wantedCount(draft, d) - 1;
  if (count <= 0) return { choices: [], lacking: null };
  const choices = chooseMore(questionOfOthers(question), draft.facts.nodes, draft.facts, count, {
    mode: draft.facts.project.spread,
    taken: new Map([[first.id, 1]]),
    // A deployment with a node has its room already.
    ...defined({ starting: d.node_id === null ? first.id : undefined }),
  });
  return {
    choices,
    lacking: choices.find(({ placement }) => placement.winner === null) ?? null,
  };
}

const questionOfOthers = (question: Question): Question => ({
  ...question,
  stays: false,
  home: null,
  needs: [...question.needs, instanceNeed],
});

/**
 * Creates the further instances, each with its deploy task. `reserved`: the numbers of
 * lost instances that wait for their nodes.
 */
export function startOthers(
  draft: Draft,
  d: DeploymentRecord,
  choices: readonly Choice[],
  mounts: DatasetMount[],
  reserved: readonly number[] = [],
): void {
  // The replacement of a lost first instance has its number.
  const first = isFirstLost(d) ? null : d.instance_number;
  const numbers = freeNumbers(first, draft.instances(d), choices.length, reserved);
  choices.forEach((choice, i) =>
    startInstance(draft, d, { number: numbers[i] as number, choice, mounts, losses: [] }),
  );
}

type Start = {
  number: number;
  choice: Choice;
  mounts: DatasetMount[];
  losses: NodeLoss[];
  /** The waiting instance that starts now. */
  waiting?: InstanceRecord;
};

/** Starts an instance on the chosen node. Without a node, the instance waits and says why. */
function startInstance(
  draft: Draft,
  d: DeploymentRecord,
  { number, choice, mounts, losses, waiting }: Start,
): void {
  const { now } = draft.facts;
  const node = draft.node(choice.placement.winner);
  const instance: InstanceRecord = {
    id: waiting?.id ?? draft.freshId(),
    project_id: d.project_id,
    deployment_id: d.id,
    process: WEB,
    number,
    labelled: true,
    host_port: null,
    container_id: null,
    memory_bytes: null,
    losses,
    created_at: waiting?.created_at ?? now,
    ...(node === undefined
      ? waitingPlace(choice, waiting, now)
      : {
          state: 'starting' as const,
          node_id: node.id,
          placement: choice.placement,
          detail: null,
          since: now,
        }),
  };
  if (node === undefined) {
    if (waiting?.detail === instance.detail) return;
    draft.putInstance(instance);
    return draft.addLine(d, 'waiting', `instance ${number} waits: ${instance.detail}`);
  }
  draft.putInstance(instance);
  const missingBytes = missingOn(choice.placement, node.id);
  // With stop-first, the old version has stopped before the further instances start.
  createDeployTask(draft, d, node, {
    mounts,
    missingBytes,
    devices: deviceIds(takeRoomOfOther(draft, d, instance, node)),
    replace: 'rolling',
    instance,
  });
  draft.addLine(d, 'instance', `instance ${number} assigned to ${node.hostname}`);
}

const waitingPlace = (
  choice: Choice,
  waiting: InstanceRecord | undefined,
  now: number,
): Pick<InstanceRecord, 'state' | 'node_id' | 'placement' | 'detail' | 'since'> => ({
  state: 'waiting',
  node_id: null,
  placement: choice.placement,
  detail: refusalsText(choice.refusals),
  since: waiting?.since ?? now,
});

export const missingOn = ({ items }: Placement, nodeId: string): number =>
  items.find((row) => row.node_id === nodeId)?.missing_bytes ?? 0;

/** Returns the instance of a deploy task; null for the task of the first instance. */
export const instanceOfTask = (task: Pick<TaskRecord, 'kind' | 'payload'>): string | null =>
  task.kind === 'deploy' ? ((task.payload as DeployPayload).instance?.id ?? null) : null;

/** The result of an instance's task, for the caller. */
export type InstanceEnd =
  | { kind: 'answers' }
  /** The instance cannot start, and no other node can take it. */
  | { kind: 'failed'; error: Failure }
  | { kind: 'nothing' };

/** Handles the report or the loss of the deploy task of a further instance. */
export function instanceEnded(
  draft: Draft,
  d: DeploymentRecord,
  event: EventOf<'task_reported'> | EventOf<'task_lost'>,
): InstanceEnd {
  const id = instanceOfTask(event.task);
  const instance = draft.instances(d).find((one) => one.id === id);
  const { now } = draft.facts;
  const isGone = startedNothing(event);
  if (isGone && id !== null) freeDevicesOf(draft, d, event.task.node_id, id);
  // The instance ended meanwhile: the next list of its node shows the container, which is removed.
  if (instance === undefined || instance.state !== 'starting') return { kind: 'nothing' };
  if (event.type === 'task_reported' && event.report.status === 'completed') {
    const host_port = event.report.host_port ?? null;
    if (host_port === null) return { kind: 'nothing' };
    draft.putInstance({
      ...instance,
      state: 'serving',
      host_port,
      container_id: event.report.container_id ?? null,
      detail: null,
      since: now,
    });
    draft.addLine(
      d,
      'instance',
      `instance ${instance.number} answers on ${nameOf(draft, instance)}`,
    );
    return { kind: 'answers' };
  }
  if (!isGone) addKeptDevices(draft, d, instance);
  const error = errorOf(draft, event);
  const losses: NodeLoss[] = [
    ...instance.losses,
    {
      node_id: event.task.node_id,
      at: now,
      ...defined({ error: event.type === 'task_reported' ? error : undefined }),
    },
  ];
  return startElsewhere(draft, d, { ...instance, losses }, error);
}

/**
 * Returns whether it is certain that no container of the task exists. A failed report names the
 * container if the agent could not remove it, and an unclaimed task starts none.
 */
export const startedNothing = (event: EventOf<'task_reported'> | EventOf<'task_lost'>): boolean =>
  event.type === 'task_lost'
    ? event.task.attempt === 0
    : event.report.status === 'failed' && typeof event.report.container_id !== 'string';

export function errorOf(
  draft: Draft,
  event: EventOf<'task_reported'> | EventOf<'task_lost'>,
): Failure {
  if (event.type === 'task_reported') return failureOf(event.report);
  const name = draft.node(event.task.node_id)?.hostname ?? event.task.node_id;
  return failure(event.why === 'queue' ? 'task_not_claimed' : 'node_lost', name);
}

/**
 * Starts the instance on another node. While the version is not live, an instance without another
 * node fails the deployment; later it waits.
 */
export function startElsewhere(
  draft: Draft,
  d: DeploymentRecord,
  instance: InstanceRecord,
  error: Failure,
  avoid: Avoid = [],
): InstanceEnd {
  const why = `instance ${instance.number} did not start on ${nameOf(draft, instance)}`;
  draft.addLine(d, 'instance', `${why}: ${error.message}`);
  const isLive = d.status === 'running';
  const isTried = instance.losses.length >= draft.facts.limits.maxLosses;
  const replaced = isLive ? withPresentLosses(draft, instance) : instance;
  const [choice] = isTried && !isLive ? [] : placesFor(draft, d, 1, { replaced, avoid });
  if (!isLive && (choice === undefined || choice.placement.winner === null)) {
    draft.removeInstance(instance.id);
    return { kind: 'failed', error };
  }
  if (isLive && isHeldBack(draft, d)) {
    draft.removeInstance(instance.id);
    return { kind: 'nothing' };
  }
  if (choice === undefined) return { kind: 'nothing' };
  const mounts = pinnedMounts(draft, d);
  if (mounts === null) return { kind: 'failed', error };
  // The new try is another instance, so that a late container of the old try is not taken for it.
  draft.removeInstance(instance.id);
  const { number, losses } = instance;
  startInstance(draft, d, { number, choice, mounts, losses: losses.slice(-MOST_LOSSES) });
  return { kind: 'nothing' };
}

/**
 * Starts the instances of a deleted node elsewhere. Returns false if one of a version that is not
 * live yet finds no other node.
 */
export function restartElsewhere(
  draft: Draft,
  d: DeploymentRecord,
  { node_id, reachable }: EventOf<'node_deleted'>,
): boolean {
  let isPlaced = true;
  for (const instance of draft.instances(d)) {
    if (instance.node_id !== node_id) continue;
    // The drain of the node moves an instance that has a container.
    if (reachable && isMovable(instance) && d.status === 'running') continue;
    endTaskOf(draft, d, instance.id);
    // A replacement that already starts elsewhere stays.
    const isReplaced =
      isMovable(instance) && replacementOf(instance, draft.instances(d)) !== undefined;
    if (instance.state === 'lost' || isReplaced) draft.removeInstance(instance.id);
    else {
      const losses = [...instance.losses, { node_id, at: draft.facts.now }];
      const end = startElsewhere(draft, d, { ...instance, losses }, failure('node_deleted'));
      isPlaced &&= end.kind !== 'failed';
    }
  }
  publishServers(draft, d);
  return isPlaced;
}

/** An instance of a running version remembers so many failures. */
const MOST_LOSSES = 8;
const FIRST_PAUSE_MS = 60_000;
const LONGEST_PAUSE_MS = 3_600_000;

/**
 * Returns the instance without failures that are long ago, so that a node where it failed is tried
 * again: after a minute, and after twice the time with each further failure. An instance of a
 * running version waits without a time limit.
 */
export const withPresentLosses = (
  { facts: { now } }: Draft,
  instance: InstanceRecord,
): InstanceRecord => ({ ...instance, losses: presentLosses(instance, now) });

/** Returns the failures for which the instance still pauses on the node where it failed. */
export function presentLosses({ losses }: Pick<InstanceRecord, 'losses'>, now: number): NodeLoss[] {
  const pauseMs = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (losses.length - 1));
  return losses.filter(({ at }) => at <= now && now - at < pauseMs);
}

/** Returns the nodes that lost an instance, so that no replacement goes to a silent node. */
function lostNodes(draft: Draft, d: DeploymentRecord): NodeLoss[] {
  const others = draft.instances(d).filter(({ state }) => state === 'lost');
  const nodes = others.map(({ node_id, since }) => ({ node_id, at: since }));
  if (d.lost_since !== null) nodes.push({ node_id: d.node_id, at: d.lost_since });
  return nodes.flatMap(({ node_id, at }) => (node_id === null ? [] : [{ node_id, at }]));
}

/** Nodes that get no instance now, because their agents are silent. */
export type Avoid = readonly NodeLoss[];

/** Returns places for further instances of a deployment that has a node. */
function placesFor(
  draft: Draft,
  d: DeploymentRecord,
  count: number,
  { replaced = null, avoid = [] }: { replaced?: InstanceRecord | null; avoid?: Avoid } = {},
): Choice[] {
  const { facts } = draft;
  const taken = takenBy(draft, d);
  if (replaced !== null && replaced.node_id !== null)
    taken.set(replaced.node_id, Math.max(0, (taken.get(replaced.node_id) ?? 1) - 1));
  return chooseMore(
    questionOfOthers(
      questionAgain(draft, d, [...(replaced?.losses ?? []), ...lostNodes(draft, d), ...avoid]),
    ),
    facts.nodes,
    facts,
    count,
    {
      mode: facts.project.spread,
      taken,
    },
  );
}

/**
 * Returns the mounts of the versions that the deployment has, so that all its instances have the
 * same data; null if a dataset was deleted. Facts.versions has the versions that are not the newest.
 */
export function pinnedMounts(draft: Draft, d: DeploymentRecord): DatasetMount[] | null {
  const { datasets, versions = [] } = draft.facts;
  const present = mountsOf(d.settings.datasets, datasets);
  if (!('mounts' in present)) return null;
  return present.mounts.map((mount) => {
    const pin = d.datasets?.find(({ dataset_id }) => dataset_id === mount.dataset_id);
    const version = versions.find(
      (one) => one.dataset_id === mount.dataset_id && one.version === pin?.version,
    );
    if (version === undefined) return mount;
    const { manifest_digest, bytes, files } = version;
    return { ...mount, version: version.version, manifest_digest, bytes, files };
  });
}

/**
 * Returns whether no instance of the running version starts now, because a version with
 * `replace: recreate` must not run beside another one. If the newer version fails, the loop starts
 * what is missing.
 */
export const isHeldBack = ({ facts }: Draft, d: DeploymentRecord): boolean =>
  d.stopped_first !== null ||
  facts.live.some(
    ({ generation, status, settings }) =>
      generation > d.generation &&
      (status === 'deploying' || (status === 'built' && settings.replace === 'recreate')) &&
      (settings.replace === 'recreate' || d.settings.replace === 'recreate'),
  );

/**
 * Starts or ends instances until as many run as the project wants. Called for each event of a
 * running deployment that can change the count.
 */
export function reconcile(
  draft: Draft,
  stored: DeploymentRecord,
  { avoid = [], isHeld = draft.facts.project.on_node_lost === 'wait' }: Reconcile = {},
): void {
  if (stored.status !== 'running' || isProjectStopped(draft) || !hasWeb(stored.settings)) return;
  unreportedFirstReturned(draft, presentOf(draft, stored));
  const d = presentOf(draft, stored);
  if (isHeldBack(draft, d)) return;
  endReplacements(draft, d);
  endDuplicates(draft, d);
  const count = wantedCount(draft, d);
  const present = wantedNumbers(d, draft.instances(d)).size;
  const waiting = unreplaced(draft, d);
  if (present > count) endSurplus(draft, d, present - count);
  // An instance that the project does not need any more is not lost. Its node removes its container.
  if (present >= count) for (const { id } of waiting) draft.removeInstance(id);
  startWaiting(draft, d, avoid);
  const reserved = isHeld ? waiting.map(({ number }) => number) : [];
  const missing = count - present - reserved.length;
  if (missing > 0) startMore(draft, d, missing, { avoid, reserved });
}

/**
 * The node of the lost first instance is back, and its contract-only agent lists no containers: its
 * route stayed, so it serves again. A replacement that already starts takes its place.
 */
function unreportedFirstReturned(draft: Draft, d: DeploymentRecord): void {
  const home = draft.node(d.node_id);
  if (d.lost_since === null || home === undefined || isBerthAgent(home)) return;
  const heardAt = Math.max(home.last_seen_at, home.last_polled_at ?? 0);
  if (heardAt <= d.lost_since || holderOfAddress(draft, d) !== null) return;
  if (draft.instances(d).some(({ state }) => state === 'starting')) return;
  const detail = `${home.hostname} is back, but its agent does not report containers; the route stays`;
  draft.set(d, {
    lost_since: null,
    health: { status: 'unknown', since: draft.facts.now, detail },
  });
  draft.addLine(d, 'instance', `its node is back; its agent does not report containers`);
}

/** `isHeld`: a lost instance waits for its node, so it counts as present. */
type Reconcile = { avoid?: Avoid; isHeld?: boolean };

/** Returns the lost further instances that have no replacement. */
function unreplaced(draft: Draft, d: DeploymentRecord): InstanceRecord[] {
  const others = draft.instances(d);
  const taken = new Set(others.filter(isWanted).map(({ number }) => number));
  if (!isFirstLost(d)) taken.add(d.instance_number);
  return others.filter(({ state, number }) => state === 'lost' && !taken.has(number));
}

function startMore(
  draft: Draft,
  d: DeploymentRecord,
  count: number,
  { avoid, reserved }: { avoid: Avoid; reserved: readonly number[] },
): void {
  const mounts = pinnedMounts(draft, d);
  if (mounts === null) return;
  startOthers(draft, d, placesFor(draft, d, count, { avoid }), mounts, reserved);
}

function startWaiting(draft: Draft, d: DeploymentRecord, avoid: Avoid): void {
  for (const waiting of draft.instances(d).filter(({ state }) => state === 'waiting')) {
    const mounts = pinnedMounts(draft, d);
    const replaced = withPresentLosses(draft, waiting);
    const [choice] = placesFor(draft, d, 1, { replaced, avoid });
    if (mounts === null || choice === undefined) return;
    const { number, losses } = waiting;
    startInstance(draft, d, { number, choice, mounts, losses, waiting });
  }
}

/**
 * Ends instances: first those that do not serve, then second ones on a machine, then the highest
 * numbers. The first instance stays. A replacement ends together with the instance that it
 * replaces.
 */
function endSurplus(draft: Draft, d: DeploymentRecord, count: number): void {
  const all = draft.instances(d).filter(isWanted);
  const firstNumber = isFirstLost(d) ? null : d.instance_number;
  const others = all.filter(
    (i) => i.number !== firstNumber && (isMovable(i) || !all.some((o) => replaces(i, o))),
  );
  const taken = takenBy(draft, d);
  const isSecond = ({ node_id }: InstanceRecord): boolean =>
    node_id !== null && (taken.get(node_id) ?? 0) > 1;
  const rank = (i: InstanceRecord): number => {
    if (i.state !== 'serving') return 0;
    return isSecond(i) ? 1 : 2;
  };
  const order = others.toSorted((a, b) => rank(a) - rank(b) || b.number - a.number);
  for (const instance of order.slice(0, count)) {
    endInstance(draft, d, instance, 'scaled down');
    const replacement = isMovable(instance) ? replacementOf(instance, all) : undefined;
    if (replacement !== undefined) endInstance(draft, d, replacement, 'scaled down');
  }
  publishServers(draft, d);
}

export function endTaskOf(
  draft: Draft,
  d: DeploymentRecord,
  instanceId: string,
  end: 'cancelled' | 'lost' = 'cancelled',
): void {
  for (const task of draft.openTasks(d))
    if (instanceOfTask(task) === instanceId)
      draft.task({ id: task.id, attempt: task.attempt, end });
}

/**
 * Ends an instance. One that serves leaves the route first: its container drains when the proxy
 * serves the new configuration (`instanceLeft`). The caller publishes the servers.
 */
export function endInstance(
  draft: Draft,
  d: DeploymentRecord,
  instance: InstanceRecord,
  reason: string,
): void {
  endTaskOf(draft, d, instance.id);
  draft.addLine(d, 'instance', `instance ${instance.number} ends: ${reason}`);
  if (instance.state === 'serving')
    return draft.putInstance({
      ...instance,
      state: 'draining',
      detail: reason,
      since: draft.facts.now,
    });
  draft.removeInstance(instance.id);
  if (instance.node_id === null || instance.container_id === null) return;
  removeContainer(draft, d, { instance, reason, drain: false });
}

function removeContainer(
  draft: Draft,
  d: DeploymentRecord,
  { instance, reason, drain }: { instance: InstanceRecord; reason: string; drain: boolean },
): void {
  createRetireTask(draft, draft.node(instance.node_id), {
    of: d,
    remove: [{ deployment: d, reason, instance: instance.labelled ? instance.id : null }],
    keep: null,
    drain,
  });
}

/** Removes the container of a draining instance: it gets no new requests any more. */
export function instanceLeft(
  draft: Draft,
  d: DeploymentRecord,
  { instance_id }: EventOf<'instance_left'>,
): void {
  const instance = draft.instances(d).find(({ id }) => id === instance_id);
  if (instance?.state !== 'draining') return;
  draft.removeInstance(instance.id);
  removeContainer(draft, d, { instance, reason: instance.detail ?? 'it ended', drain: true });
}

type EndOthers = {
  reason: string;
  drain: boolean;
  except?: string | null;
  startsAgain?: boolean;
};

/**
 * Removes all instances but the first one with their containers, except on `except`.
 * `startsAgain`: the deployment goes on, so each other container of it stays: the new first one can
 * already start on the same node.
 */
export function endOthers(
  draft: Draft,
  d: DeploymentRecord,
  { reason, drain, except = null, startsAgain = false }: EndOthers,
): void {
  const others = [...draft.instances(d), ...draft.workers(d)];
  if (others.length === 0) return;
  const nodes = new Set(others.flatMap(({ node_id }) => node_id ?? []));
  forgetOthers(draft, d);
  for (const nodeId of nodes) {
    if (nodeId === except) continue;
    const there = others.filter(({ node_id }) => node_id === nodeId);
    createRetireTask(draft, draft.node(nodeId), {
      of: d,
      remove: startsAgain
        ? there.map((i) => ({ deployment: d, reason, instance: i.labelled ? i.id : null }))
        : [
            {
              deployment: d,
              reason,
              ...defined({ containers: there.length > 1 ? there.length : undefined }),
            },
          ],
      keep: null,
      drain,
    });
  }
}

/** Removes all instances but the first one, and ends their tasks; their containers stay. */
export function forgetOthers(draft: Draft, d: DeploymentRecord): void {
  for (const { id } of [...draft.instances(d), ...draft.workers(d)]) {
    endTaskOf(draft, d, id);
    draft.removeInstance(id);
  }
}

/**
 * Starts a replacement elsewhere for each instance on a drained node (the event `node_drained`). It
 * has the number of the instance that it replaces, and takes its place when it answers
 * (`takePlace`). Without another node the replacement waits, and the instance serves on.
 */
export function nodeDrained(
  draft: Draft,
  d: DeploymentRecord,
  { node_id }: EventOf<'node_drained'>,
): void {
  // A newer version in progress gets no instance on the node, and removes the instances of this one.
  if (isProjectStopped(draft) || draft.facts.live.length > 1 || !isLeft(draft, node_id)) return;
  const others = draft.instances(d);
  const numbers = movableOn(d, others, node_id)
    .filter((instance) => replacementOf(instance, others) === undefined)
    .map(({ number }) => number);
  const mounts = numbers.length === 0 ? null : pinnedMounts(draft, d);
  if (mounts === null) return;
  const choices = placesFor(draft, d, numbers.length);
  numbers.forEach((number, i) =>
    startInstance(draft, d, { number, choice: choices[i] as Choice, mounts, losses: [] }),
  );
}

/** An instance that leaves its node; the first one has the id null. */
export type Leaving = Pick<InstanceRecord, 'process' | 'number'> & { id: string | null };

/** Returns the instances on the node that a drain moves. The first one of a resting project stays. */
export const movableOn = (
  d: DeploymentRecord,
  others: readonly InstanceRecord[],
  nodeId: string,
): Leaving[] => [
  ...(d.node_id === nodeId && !isFirstLost(d) && !isAtRest(d)
    ? [{ id: null, process: WEB, number: d.instance_number }]
    : []),
  ...others.filter((instance) => instance.node_id === nodeId && isMovable(instance)),
];

/** Returns whether the instances on the node must leave it. */
export function isLeft(draft: Draft, nodeId: string | null): boolean {
  const node = draft.node(nodeId);
  return node !== undefined && (node.deleting_at !== null || node.drain !== null);
}

/** Ends the replacements of instances whose node takes work again, because its drain was taken back. */
function endReplacements(draft: Draft, d: DeploymentRecord): void {
  const others = draft.instances(d);
  const staying = [
    ...(isFirstLost(d)
      ? []
      : [{ id: null, process: WEB, number: d.instance_number, node_id: d.node_id }]),
    ...others.filter(isMovable),
  ].filter(({ node_id }) => !isLeft(draft, node_id));
  for (const instance of staying) {
    const replacement = replacementOf(instance, others);
    if (replacement === undefined) continue;
    const name = nameOf(draft, instance);
    endInstance(draft, d, replacement, `${name} keeps its instance`);
  }
}

/**
 * Ends instances whose number another one has that has served too: the project wants one of them.
 * Keeps the first instance, then one that serves, then the oldest.
 */
function endDuplicates(draft: Draft, d: DeploymentRecord): void {
  const isKept = new Set(isFirstLost(d) ? [] : [d.instance_number]);
  const order = draft
    .instances(d)
    .filter(isMovable)
    .toSorted(
      (a, b) =>
        Number(b.state === 'serving') - Number(a.state === 'serving') ||
        a.created_at - b.created_at,
    );
  let isEnded = false;
  for (const instance of order) {
    if (isKept.has(instance.number)) {
      endInstance(draft, d, instance, 'another instance has its number');
      isEnded = true;
    }
    isKept.add(instance.number);
  }
  if (isEnded) publishServers(draft, d);
}

/**
 * Puts an instance that answers into the place of the one with its number, which drains and ends.
 * The same change of the route adds the one and removes the other.
 */
export function takePlace(draft: Draft, d: DeploymentRecord, instance: InstanceRecord): void {
  const replaced = draft
    .instances(d)
    .find((one) => one.id !== instance.id && one.number === instance.number && isMovable(one));
  const name = nameOf(draft, instance);
  if (!isFirstLost(d) && d.instance_number === instance.number)
    return promote(draft, d, instance, {
      state: 'draining',
      detail: `instance ${instance.number} runs on ${name} now`,
    });
  if (replaced !== undefined) endInstance(draft, d, replaced, `it runs on ${name} now`);
  publishServers(draft, d);
}
