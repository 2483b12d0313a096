/**
 * Decides about the instances of processes without HTTP ("workers"). Each is an InstanceRecord; they
 * have no address and no part in the route.
 *
 *   waiting ──a node has room──▶ starting ──runs for settle_seconds──▶ serving ──exits, or restarts
 *      ▲                            │ exits, or its node fails                    again and again──▶ unhealthy
 *      └────────────────────────────┘ (a version that is not live yet fails)
 *
 * With `replace: rolling` the workers of a new version start before its route is published, and the
 * old ones stop after the switch. With `recreate` the old ones stop after the switch, and the new
 * ones start when their containers are gone; if the old version has none of that process, they start
 * before the switch too, so that one that exits fails the deployment. Beside this file:
 * `observed-worker` (reports of nodes). Pure.
 */
import type { DatasetMount } from '@berth/wire/dataset';
import type { Process } from '@berth/wire/project';
import type { VolumeMounts } from '@berth/wire/volume';
import { LABELS } from '@berth/wire/vocabulary';
import { currentCopy, isStopFirst, volumeMounts } from '../domain/data/volumes.ts';
import type { NodeFact } from '../domain/deployments/facts.ts';
import {
  freeNumbers,
  type InstanceRecord,
  isMovable,
  isWanted,
  replacementOf,
} from '../domain/deployments/instance.ts';
import { instanceNeed, processNeed } from '../domain/nodes/build-needs.ts';
import { isOnline, type Choice, chooseMore, type Question } from '../domain/nodes/placement.ts';
import { refusalsText } from '../domain/nodes/refusal.ts';
import { deviceIds, type Freed } from '../domain/nodes/room.ts';
import type { DeploymentRecord, Failure, NodeLoss } from '../domain/platform/records.ts';
import { finalName } from '../domain/projects/container-name.ts';
import {
  countIn,
  processIn,
  replaceOf,
  webSettings,
  workerSettings,
  workersIn,
} from '../domain/projects/processes.ts';
import type { EventOf } from './events.ts';
import { failure, failureOf } from './failure.ts';
import { nameOf, presentOf } from './instance-route.ts';
import {
  type Avoid,
  endTaskOf,
  errorOf,
  instanceOfTask,
  isLeft,
  missingOn,
  pinnedMounts,
  startedNothing,
  withPresentLosses,
} from './instances.ts';
import { questionAgain } from './placement-question.ts';
import type { Draft } from './plan-draft.ts';
import {
  addKeptDevices,
  freeDevicesOf,
  machineOfOther,
  type PlacedBeside,
  takeRoomOfOther,
} from './room.ts';
import { isAtRest, isProjectStopped, isStoppedByPerson, restsAtZero } from './stop.ts';
import { createDeployTask, createRetireTask } from './tasks.ts';

/** Returns the deployment as a process without HTTP sees it: with the limits of the process. */
const asProcess = (d: DeploymentRecord, process: Process): DeploymentRecord => ({
  ...d,
  settings: workerSettings(d.settings, process),
});

export const labelOf = ({ process, number }: Pick<InstanceRecord, 'process' | 'number'>): string =>
  `${process} ${number}`;

/** Returns the instances of one process without HTTP. */
const workersOf = (
  draft: Draft,
  d: Pick<DeploymentRecord, 'id'>,
  { name }: Process,
): InstanceRecord[] => draft.workers(d).filter(({ process }) => process === name);

/**
 * Returns how many instances of the process the version should have now. A project that rests
 * because the count of `web` is 0 keeps its workers; one that a person stopped has none.
 */
function wantedOf(draft: Draft, d: DeploymentRecord, process: Process): number {
  const writes = isStopFirst(d.settings);
  if (isWithoutWorkers(draft, d, writes)) return 0;
  const count = countIn(draft.facts.project, process, d);
  return writes ? Math.min(1, count) : count;
}

/** The volumes of a project that rests can move, so a version that writes has no workers then. */
function isWithoutWorkers(draft: Draft, d: DeploymentRecord, writes: boolean): boolean {
  if (d.status === 'running')
    return isProjectStopped(draft) && (writes || isStoppedByPerson(draft));
  // A version in progress ends the stop of a person when it goes live.
  return writes && restsAtZero(draft, d);
}

/**
 * Returns the nodes that can run the processes of the version: for one that writes, the node of its
 * `web`, because its data is there.
 */
const nodesFor = (
  draft: Draft,
  { settings }: Pick<DeploymentRecord, 'settings'>,
  home: string | null,
): readonly NodeFact[] =>
  isStopFirst(settings) ? draft.facts.nodes.filter(({ id }) => id === home) : draft.facts.nodes;

const runningOf = ({ facts }: Draft, d: DeploymentRecord): DeploymentRecord | undefined =>
  facts.live.find((o) => o.status === 'running' && o.id !== d.id);

/** Returns whether the process starts after the switch, when the old instances have stopped. */
function startsLate(draft: Draft, d: DeploymentRecord, process: Process): boolean {
  const old = runningOf(draft, d);
  return (
    replaceOf(process) === 'recreate' &&
    // The agent has stopped all containers of the old version before those of this one start.
    !isStopFirst(d.settings) &&
    old !== undefined &&
    workersOf(draft, old, process).some(({ node_id }) => node_id !== null)
  );
}

/** The nodes for the workers that start before the switch. */
export type WorkerPlaces = {
  places: { process: Process; choices: readonly Choice[] }[];
  /** The first choice without a node; null if each worker has one. */
  lacking: Choice | null;
};

/**
 * Chooses the nodes for the workers that start before the switch. `web`: the nodes of the version's
 * `web` instances, whose room does not count as held yet.
 */
export function placeWorkers(
  draft: Draft,
  d: DeploymentRecord,
  question: Question,
  { web, freed }: { web: readonly string[]; freed: readonly Freed[] },
): WorkerPlaces {
  // A deployment with a node has its room already.
  const beside: PlacedBeside[] =
    d.node_id === null
      ? web.map((node_id) => ({ node_id, settings: webSettings(d.settings) }))
      : [];
  const places = workersIn(d.settings)
    .filter((process) => !startsLate(draft, d, process))
    .map((process) => {
      const own = asProcess(d, process);
      const choices = chooseMore(
        questionFor(process, {
          ...question,
          machine: machineOfOther(draft, own, { freed, beside }),
        }),
        nodesFor(draft, d, web[0] ?? d.node_id),
        draft.facts,
        wantedOf(draft, d, process),
        { mode: draft.facts.project.spread, taken: new Map() },
      );
      for (const { placement } of choices)
        if (placement.winner !== null)
          beside.push({ node_id: placement.winner, settings: own.settings });
      return { process, choices };
    });
  const lacking = places
    .flatMap(({ choices }) => choices)
    .find(({ placement }) => placement.winner === null);
  return { places, lacking: lacking ?? null };
}

const questionFor = (process: Process, question: Question): Question => ({
  ...question,
  stays: false,
  home: null,
  needs: [...question.needs, instanceNeed, processNeed(process.name)],
});

/** Starts the workers that `placeWorkers` placed. */
export function startWorkers(
  draft: Draft,
  d: DeploymentRecord,
  places: WorkerPlaces['places'],
  mounts: DatasetMount[],
): void {
  for (const { process, choices } of places) {
    const numbers = freeNumbers(null, workersOf(draft, d, process), choices.length);
    choices.forEach((choice, i) =>
      startWorker(draft, d, process, { number: numbers[i] as number, choice, mounts, losses: [] }),
    );
  }
}

type Start = {
  number: number;
  choice: Choice;
  mounts: DatasetMount[];
  losses: NodeLoss[];
  /** The waiting instance that starts now. */
  waiting?: InstanceRecord;
};

/** Starts a worker on the chosen node. Without a node, it waits and says why. */
function startWorker(
  draft: Draft,
  d: DeploymentRecord,
  process: Process,
  { number, choice, mounts, losses, waiting }: Start,
): void {
  const node = draft.node(choice.placement.winner);
  const { placement } = choice;
  if (node === undefined)
    return putWaiting(draft, d, process, {
      number,
      losses,
      placement,
      detail: refusalsText(choice.refusals),
      waiting,
    });
  const own = asProcess(d, process);
  const worker: InstanceRecord = {
    ...blank(draft, own, process, waiting),
    number,
    losses,
    state: 'starting',
    node_id: node.id,
    placement,
    detail: null,
    since: draft.facts.now,
  };
  draft.putInstance(worker);
  createDeployTask(draft, own, node, {
    mounts,
    missingBytes: missingOn(placement, node.id),
    devices: deviceIds(takeRoomOfOther(draft, own, worker, node)),
    replace: 'rolling',
    instance: worker,
    process,
    ...volumesOfWorker(draft, d, node),
  });
  draft.addLine(d, 'instance', `${labelOf(worker)} assigned to ${node.hostname}`);
}

/** Returns the mounts of the volumes, which are on the node of `web`. */
function volumesOfWorker(
  draft: Draft,
  { settings }: DeploymentRecord,
  node: NodeFact,
): { volumes?: VolumeMounts } {
  const copy = settings.volumes.length === 0 ? null : currentCopy(draft.volumes());
  return copy?.node_id === node.id ? { volumes: volumeMounts(settings, copy) } : {};
}

type Blank = Pick<
  InstanceRecord,
  | 'id'
  | 'project_id'
  | 'deployment_id'
  | 'process'
  | 'labelled'
  | 'host_port'
  | 'container_id'
  | 'memory_bytes'
  | 'created_at'
>;

const blank = (
  draft: Draft,
  d: DeploymentRecord,
  process: Process,
  waiting: InstanceRecord | undefined,
): Blank => ({
  id: waiting?.id ?? draft.freshId(),
  project_id: d.project_id,
  deployment_id: d.id,
  process: process.name,
  labelled: true,
  host_port: null,
  container_id: null,
  memory_bytes: workerSettings(d.settings, process).memory_bytes ?? 0,
  created_at: waiting?.created_at ?? draft.facts.now,
});

type Waiting = Pick<Start, 'number' | 'losses'> & {
  placement: InstanceRecord['placement'];
  detail: string;
  waiting: InstanceRecord | undefined;
};

function putWaiting(
  draft: Draft,
  d: DeploymentRecord,
  process: Process,
  { number, losses, placement, detail, waiting }: Waiting,
): void {
  if (waiting?.state === 'waiting' && waiting.detail === detail) return;
  const worker: InstanceRecord = {
    ...blank(draft, d, process, waiting),
    number,
    losses,
    state: 'waiting',
    node_id: null,
    placement,
    detail,
    since: waiting?.since ?? draft.facts.now,
  };
  draft.putInstance(worker);
  draft.addLine(d, 'waiting', `${labelOf(worker)} waits: ${detail}`);
}

/** Returns how many workers have not started yet, so that the version cannot go live. */
export const startingWorkers = (draft: Draft, d: DeploymentRecord): number =>
  draft.workers(d).filter(({ state }) => state === 'starting' || state === 'waiting').length;

/** The result of a worker's task, for the caller. */
export type WorkerEnd =
  | { kind: 'runs'; worker: InstanceRecord }
  /** The worker cannot start, so the version that is not live yet fails. */
  | { kind: 'failed'; error: Failure }
  | { kind: 'nothing' };

/** Handles the report or the loss of the deploy task of a worker. */
export function workerEnded(
  draft: Draft,
  d: DeploymentRecord,
  event: EventOf<'task_reported'> | EventOf<'task_lost'>,
): WorkerEnd {
  const id = instanceOfTask(event.task);
  const worker = draft.workers(d).find((one) => one.id === id);
  const { now } = draft.facts;
  const isGone = startedNothing(event);
  if (isGone && id !== null) freeDevicesOf(draft, d, event.task.node_id, id);
  if (worker === undefined || worker.state !== 'starting') return { kind: 'nothing' };
  if (event.type === 'task_reported' && event.report.status === 'completed') {
    const runs: InstanceRecord = {
      ...worker,
      state: 'serving',
      container_id: event.report.container_id ?? null,
      detail: null,
      losses: [],
      since: now,
    };
    draft.putInstance(runs);
    draft.addLine(d, 'instance', `${labelOf(worker)} runs on ${nameOf(draft, worker)}`);
    return { kind: 'runs', worker: runs };
  }
  if (!isGone) addKeptDevices(draft, d, worker);
  const error = event.type === 'task_reported' ? failureOf(event.report) : errorOf(draft, event);
  const lost = { node_id: event.task.node_id, at: now };
  const losses = [...worker.losses, event.type === 'task_reported' ? { ...lost, error } : lost];
  return startWorkerElsewhere(draft, d, { ...worker, losses }, error);
}

/**
 * Starts a worker on another node. While the version is not live, a worker that exits or has no
 * other node fails the deployment; later it waits and is tried again.
 */
export function startWorkerElsewhere(
  draft: Draft,
  d: DeploymentRecord,
  worker: InstanceRecord,
  error: Failure,
  avoid: Avoid = [],
): WorkerEnd {
  draft.addLine(
    d,
    'instance',
    `${labelOf(worker)} did not start on ${nameOf(draft, worker)}: ${error.message}`,
  );
  // The new try is another instance, so that a late container of the old try is not taken for it.
  draft.removeInstance(worker.id);
  const process = processIn(d.settings, worker.process);
  const mounts = pinnedMounts(draft, d);
  const isLive = d.status === 'running';
  const isFinal =
    error.code === 'process_exited' || worker.losses.length >= draft.facts.limits.maxLosses;
  if (process === undefined || mounts === null || (!isLive && isFinal))
    return { kind: 'failed', error };
  const replaced = isLive ? withPresentLosses(draft, worker) : worker;
  const [choice] = placesOf(draft, d, process, 1, { replaced, avoid });
  if (!isLive && (choice === undefined || choice.placement.winner === null))
    return { kind: 'failed', error };
  if (choice === undefined) return { kind: 'nothing' };
  const { number, losses } = worker;
  startWorker(draft, d, process, { number, choice, mounts, losses: losses.slice(-MOST_LOSSES) });
  return { kind: 'nothing' };
}

/** A worker of a running version remembers so many failures. */
const MOST_LOSSES = 8;

/** Returns places for workers of a deployment that runs or starts. */
function placesOf(
  draft: Draft,
  d: DeploymentRecord,
  process: Process,
  count: number,
  { replaced, avoid = [] }: { replaced?: InstanceRecord; avoid?: Avoid } = {},
): Choice[] {
  const own = asProcess(d, process);
  const rows = workersOf(draft, d, process);
  const taken = new Map<string, number>();
  for (const { node_id, state } of rows)
    if (node_id !== null && isWanted({ state }) && replaced?.node_id !== node_id)
      taken.set(node_id, (taken.get(node_id) ?? 0) + 1);
  const lost = rows.flatMap(({ state, node_id, since }) =>
    state === 'lost' && node_id !== null ? [{ node_id, at: since }] : [],
  );
  return chooseMore(
    questionFor(
      process,
      questionAgain(draft, own, [...(replaced?.losses ?? []), ...lost, ...avoid]),
    ),
    nodesFor(draft, d, d.node_id),
    draft.facts,
    count,
    { mode: draft.facts.project.spread, taken },
  );
}

/**
 * Returns why no instance of a process with `recreate` starts now: an old container of it still
 * ends, on a node that can say so.
 */
function waitsForOld(draft: Draft, d: DeploymentRecord, process: Process): string | null {
  if (replaceOf(process) !== 'recreate') return null;
  const removing = [...draft.facts.tasks, ...draft.plan.createTasks].find(
    (task) =>
      task.kind === 'retire' &&
      'remove' in task.payload &&
      task.payload.remove.length > 0 &&
      !draft.plan.changeTasks.some((change) => change.id === task.id && 'end' in change),
  );
  const node =
    draft.node(removing?.node_id ?? null) ??
    draft.facts.nodes.find((one) => hasOld(draft, d, one, process));
  return node === undefined ? null : `an old container of ${process.name} on ${node.hostname} ends`;
}

/** Returns whether a node that is online reports a container of the process of another version. */
const hasOld = (
  { facts }: Draft,
  d: DeploymentRecord,
  node: NodeFact,
  { name }: Process,
): boolean =>
  isOnline(node, facts.now, facts.limits) &&
  node.containers.some(
    ({ labels, state }) =>
      state === 'running' &&
      labels[LABELS.project] === d.project_id &&
      labels[LABELS.process] === name &&
      labels[LABELS.deployment] !== d.id,
  );

/** `isHeld`: a lost worker waits for its node, so it counts as present. */
type Reconcile = { avoid?: Avoid; isHeld?: boolean };

/** Returns whether no worker of the running version starts now: a newer one replaces it. */
export const isHeldBack = (draft: Draft, d: DeploymentRecord): boolean =>
  (d.stopped_first !== null && !isAtRest(d)) ||
  draft.facts.live.some(
    (newer) =>
      newer.generation > d.generation &&
      newer.status === 'deploying' &&
      (newer.settings.replace === 'recreate' || newer.route_published_at !== null),
  );

/** Starts or ends workers until as many run as the project wants. */
export function reconcileWorkers(
  draft: Draft,
  stored: DeploymentRecord,
  { avoid = [], isHeld = draft.facts.project.on_node_lost === 'wait' }: Reconcile = {},
): void {
  const d = presentOf(draft, stored);
  if (d.status !== 'running' || isHeldBack(draft, d)) return;
  for (const process of workersIn(d.settings))
    reconcileProcess(draft, d, process, { avoid, isHeld });
}

function reconcileProcess(
  draft: Draft,
  d: DeploymentRecord,
  process: Process,
  { avoid, isHeld }: Required<Reconcile>,
): void {
  const rows = (): InstanceRecord[] => workersOf(draft, d, process);
  endExtra(draft, d, rows());
  const count = wantedOf(draft, d, process);
  const numbers = new Set(
    rows()
      .filter(isWanted)
      .map(({ number }) => number),
  );
  const lost = rows().filter(({ state, number }) => state === 'lost' && !numbers.has(number));
  if (numbers.size > count) endSurplus(draft, d, rows(), numbers.size - count);
  // A worker that the project does not need any more is not lost. Its node removes its container.
  if (numbers.size >= count) for (const { id } of lost) draft.removeInstance(id);
  const wait = waitsForOld(draft, d, process);
  startWaiting(draft, d, process, { avoid, wait });
  const reserved = isHeld ? lost.map(({ number }) => number) : [];
  const missing = count - numbers.size - reserved.length;
  if (missing > 0) startMore(draft, d, process, { missing, reserved, avoid, wait });
}

type More = { missing: number; reserved: readonly number[]; avoid: Avoid; wait: string | null };

function startMore(
  draft: Draft,
  d: DeploymentRecord,
  process: Process,
  { missing, reserved, avoid, wait }: More,
): void {
  const mounts = pinnedMounts(draft, d);
  const numbers = freeNumbers(null, workersOf(draft, d, process), missing, reserved);
  if (wait !== null)
    return numbers.forEach((number) =>
      putWaiting(draft, d, process, {
        number,
        losses: [],
        placement: null,
        detail: wait,
        waiting: undefined,
      }),
    );
  if (mounts === null) return;
  placesOf(draft, d, process, missing, { avoid }).forEach((choice, i) =>
    startWorker(draft, d, process, { number: numbers[i] as number, choice, mounts, losses: [] }),
  );
}

function startWaiting(
  draft: Draft,
  d: DeploymentRecord,
  process: Process,
  { avoid, wait }: { avoid: Avoid; wait: string | null },
): void {
  for (const waiting of workersOf(draft, d, process)) {
    if (waiting.state !== 'waiting') continue;
    const { number, losses, placement } = waiting;
    if (wait !== null) {
      putWaiting(draft, d, process, { number, losses, placement, detail: wait, waiting });
      continue;
    }
    const mounts = pinnedMounts(draft, d);
    const replaced = withPresentLosses(draft, waiting);
    const [choice] = placesOf(draft, d, process, 1, { replaced, avoid });
    if (mounts === null || choice === undefined) return;
    startWorker(draft, d, process, { number, choice, mounts, losses, waiting });
  }
}

/** Ends second workers of one number, and replacements on account of a drain that was taken back. */
function endExtra(draft: Draft, d: DeploymentRecord, rows: readonly InstanceRecord[]): void {
  const kept = new Set<number>();
  const order = rows
    .filter(isMovable)
    .toSorted(
      (a, b) =>
        Number(b.state === 'serving') - Number(a.state === 'serving') ||
        a.created_at - b.created_at,
    );
  for (const worker of order) {
    if (kept.has(worker.number)) {
      endWorker(draft, d, worker, 'another instance has its number');
      continue;
    }
    kept.add(worker.number);
    const replacement = replacementOf(worker, rows);
    if (replacement !== undefined && !isLeft(draft, worker.node_id))
      endWorker(draft, d, replacement, `${nameOf(draft, worker)} keeps its instance`);
  }
}

/** Ends workers: first those that do not run, then the highest numbers. */
function endSurplus(
  draft: Draft,
  d: DeploymentRecord,
  rows: readonly InstanceRecord[],
  count: number,
): void {
  const wanted = rows.filter(isWanted);
  const firsts = wanted.filter(
    (one) => !wanted.some((other) => isMovable(other) && replacementOf(other, [one]) === one),
  );
  const order = firsts.toSorted(
    (a, b) => Number(a.state === 'serving') - Number(b.state === 'serving') || b.number - a.number,
  );
  for (const worker of order.slice(0, count)) {
    endWorker(draft, d, worker, 'scaled down');
    const replacement = replacementOf(worker, rows);
    if (replacement !== undefined) endWorker(draft, d, replacement, 'scaled down');
  }
}

/** Ends a worker: its container stops with the grace period, and is removed. */
export function endWorker(
  draft: Draft,
  d: DeploymentRecord,
  worker: InstanceRecord,
  reason: string,
): void {
  endTaskOf(draft, d, worker.id);
  draft.addLine(d, 'instance', `${labelOf(worker)} ends: ${reason}`);
  draft.removeInstance(worker.id);
  if (worker.node_id === null || worker.container_id === null) return;
  createRetireTask(draft, draft.node(worker.node_id), {
    of: d,
    remove: [{ deployment: d, reason, instance: worker.id }],
    keep: null,
    drain: false,
  });
}

export function endWorkers(draft: Draft, d: DeploymentRecord, reason: string): void {
  for (const worker of draft.workers(d)) endWorker(draft, d, worker, reason);
}

/**
 * Moves the workers of a drained node (the event `node_drained`). With `recreate` the old one stops
 * first, if another node can take it.
 */
export function workersDrained(
  draft: Draft,
  d: DeploymentRecord,
  { node_id }: EventOf<'node_drained'>,
): void {
  if (isHeldBack(draft, d) || draft.facts.live.length > 1 || !isLeft(draft, node_id)) return;
  const mounts = pinnedMounts(draft, d);
  if (mounts === null) return;
  for (const process of workersIn(d.settings))
    for (const worker of workersOf(draft, d, process)) {
      const isMoved = replacementOf(worker, workersOf(draft, d, process)) !== undefined;
      if (worker.node_id !== node_id || !isMovable(worker) || isMoved) continue;
      moveWorker(draft, d, process, worker, mounts);
    }
}

function moveWorker(
  draft: Draft,
  d: DeploymentRecord,
  process: Process,
  worker: InstanceRecord,
  mounts: DatasetMount[],
): void {
  const [choice] = placesOf(draft, d, process, 1, { replaced: worker });
  const { number } = worker;
  if (choice === undefined) return;
  const isPlaced = choice.placement.winner !== null;
  if (replaceOf(process) === 'rolling' || !isPlaced)
    return startWorker(draft, d, process, { number, choice, mounts, losses: [] });
  endWorker(draft, d, worker, `it moves away from ${nameOf(draft, worker)}`);
  putWaiting(draft, d, process, {
    number,
    losses: [],
    placement: null,
    detail: `an old container of ${process.name} on ${nameOf(draft, worker)} ends`,
    waiting: undefined,
  });
}

/**
 * Starts the workers of a deleted node elsewhere. Returns why the version fails, if one that is not
 * live yet finds no other node; else null.
 */
export function restartWorkers(
  draft: Draft,
  d: DeploymentRecord,
  { node_id, reachable }: EventOf<'node_deleted'>,
): Failure | null {
  let failed: Failure | null = null;
  for (const worker of draft.workers(d)) {
    const isLive = d.status === 'running';
    // The drain of the node moves a worker that has a container.
    if (worker.node_id !== node_id || (reachable && isMovable(worker) && isLive)) continue;
    endTaskOf(draft, d, worker.id);
    if (isLive) {
      draft.removeInstance(worker.id);
      continue;
    }
    const losses = [...worker.losses, { node_id, at: draft.facts.now }];
    const end = startWorkerElsewhere(draft, d, { ...worker, losses }, failure('node_deleted'));
    if (end.kind === 'failed') failed = end.error;
  }
  reconcileWorkers(draft, d);
  return failed;
}

/** Ends the worker that a new one with its number replaces, for example on a drained node. */
export function workerTakesPlace(draft: Draft, d: DeploymentRecord, worker: InstanceRecord): void {
  const replaced = draft
    .workers(d)
    .find(
      (one) =>
        one.id !== worker.id &&
        one.process === worker.process &&
        one.number === worker.number &&
        isMovable(one),
    );
  if (replaced !== undefined)
    endWorker(draft, d, replaced, `it runs on ${nameOf(draft, worker)} now`);
}

export const workerName = (
  d: Pick<DeploymentRecord, 'settings'>,
  { process, number }: Pick<InstanceRecord, 'process' | 'number'>,
): string => `${finalName(d.settings)}-${process}-${number}`;
