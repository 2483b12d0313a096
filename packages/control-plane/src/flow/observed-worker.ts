/**
 * Decides what the container lists of nodes mean for the instances of processes without HTTP: one
 * fails, restarts again and again, runs again, is missing, or returns with its node. Pure.
 */
import type { ObservedContainer } from '@berth/wire/node';
import { LABELS } from '@berth/wire/vocabulary';
import {
  instanceLabel,
  type InstanceRecord,
  isContainerOf,
  isWanted,
} from '../domain/deployments/instance.ts';
import type { DeploymentRecord } from '../domain/platform/records.ts';
import type { EventOf } from './events.ts';
import { failure } from './failure.ts';
import { nameOf, refreshHealth } from './instance-route.ts';
import { type Avoid, endTaskOf } from './instances.ts';
import { holdOf } from './lost-instance.ts';
import { stillHas } from './observe.ts';
import {
  hasJustStarted,
  isLoop,
  MISSING_MS,
  removeStrayContainer,
  RESTART_MS,
  whyNotUp,
} from './observed-instance.ts';
import type { Draft } from './plan-draft.ts';
import { isSameContainer, isStoppedContainer } from './reported-containers.ts';
import { addKeptDevices } from './room.ts';
import { isProjectStopped, isStoppedByPerson } from './stop.ts';
import {
  endWorker,
  isHeldBack,
  labelOf,
  reconcileWorkers,
  startWorkerElsewhere,
} from './workers.ts';
import { WEB } from '@berth/wire/project';

/** Handles the container of a worker, or its absence. Returns false if it is no worker's. */
export function observedWorker(
  draft: Draft,
  d: DeploymentRecord,
  event: EventOf<'observed'>,
): boolean {
  const { container, node_id } = event;
  const worker = draft
    .workers(d)
    .find((one) =>
      container === null
        ? one.id === event.instance_id
        : isContainerOf(one, container, node_id) || isSameContainer(one, container),
    );
  if (worker === undefined) {
    const process = container?.labels[LABELS.process] ?? WEB;
    if (container === null || process === WEB || instanceLabel(container) === null) return false;
    removeStrayContainer(draft, d, { container, node_id });
    return true;
  }
  if (worker.node_id !== node_id) {
    if (container !== null) workerElsewhere(draft, d, worker, { container, node_id });
    return true;
  }
  if (worker.state !== 'starting' && worker.state !== 'waiting') judge(draft, d, worker, container);
  return true;
}

/** The machine of a worker was renamed, or its container is a leftover on another node. */
function workerElsewhere(
  draft: Draft,
  d: DeploymentRecord,
  worker: InstanceRecord,
  { container, node_id }: { container: ObservedContainer; node_id: string },
): void {
  if (!isSameContainer(worker, container))
    return removeStrayContainer(draft, d, { container, node_id });
  const [own, node] = [draft.node(worker.node_id), draft.node(node_id)];
  if (node === undefined || worker.container_id === null) return;
  if (own !== undefined && (own.has_secret || stillHas(own, worker.container_id, draft.facts)))
    return;
  const moved = { ...worker, node_id };
  draft.putInstance(moved);
  draft.addLine(
    d,
    'node_changed',
    `${node.hostname} (${node.host_ip}) now reports the container of ${labelOf(worker)}, and ` +
      `${own?.hostname ?? 'a deleted node'} does not`,
  );
  judge(draft, d, moved, container);
}

function judge(
  draft: Draft,
  d: DeploymentRecord,
  worker: InstanceRecord,
  container: ObservedContainer | null,
): void {
  const { now } = draft.facts;
  if (worker.state === 'lost') return returned(draft, d, worker, container);
  const detail = whyNotUp(container);
  if (detail === null) {
    // A loop must not look healthy between two exits.
    if (worker.state === 'serving' || container === null || hasJustStarted(container, now)) return;
    draft.putInstance({ ...worker, state: 'serving', detail: null, since: now });
    return draft.addLine(d, 'instance', `${labelOf(worker)} runs again`);
  }
  // Its container stopped for a newer version, and starts again if that one fails.
  if (isHeldBack(draft, d)) return;
  // The engine starts it again in a moment, unless that happens again and again.
  if (container?.state === 'restarting' && worker.state === 'serving' && !isLoop(container)) return;
  if (worker.state === 'unhealthy' && now - worker.since >= MISSING_MS)
    if (container === null || isLeftStopped(draft, d, worker, container))
      return replace(draft, d, worker, container);
  if (worker.state === 'unhealthy' && worker.detail === detail) return;
  const since = worker.state === 'unhealthy' ? worker.since : now;
  draft.putInstance({ ...worker, state: 'unhealthy', detail, since });
  if (worker.state !== 'unhealthy')
    draft.addLine(d, 'instance', `${labelOf(worker)} does not run: ${detail}`);
}

/** Returns whether a container that should run stays stopped. */
const isLeftStopped = (
  draft: Draft,
  d: DeploymentRecord,
  worker: InstanceRecord,
  container: ObservedContainer,
): boolean =>
  d.status === 'running' &&
  isStoppedContainer(container) &&
  draft.facts.now - worker.since >= RESTART_MS;

/** Starts another worker for one whose container is gone or stays stopped. */
function replace(
  draft: Draft,
  d: DeploymentRecord,
  worker: InstanceRecord,
  container: ObservedContainer | null,
): void {
  if (d.status !== 'running' || (isProjectStopped(draft) && isStoppedByPerson(draft))) return;
  if (container !== null) endWorker(draft, d, worker, 'its container stays stopped');
  else {
    endTaskOf(draft, d, worker.id);
    draft.removeInstance(worker.id);
    const on = nameOf(draft, worker);
    draft.addLine(d, 'instance', `${labelOf(worker)} ends: its container is missing on ${on}`);
  }
  reconcileWorkers(draft, d);
}

/** A lost worker is back: it goes on, or ends if another one has its number. */
function returned(
  draft: Draft,
  d: DeploymentRecord,
  worker: InstanceRecord,
  container: ObservedContainer | null,
): void {
  const isReplaced = draft
    .workers(d)
    .some(
      (one) =>
        one.process === worker.process && one.number === worker.number && one.state === 'serving',
    );
  if (container === null) draft.removeInstance(worker.id);
  else if (isReplaced || container.state !== 'running')
    endWorker(draft, d, worker, 'its node returned, and another one runs');
  else {
    draft.putInstance({ ...worker, state: 'serving', detail: null, since: draft.facts.now });
    draft.addLine(d, 'instance', `${labelOf(worker)} is back on ${nameOf(draft, worker)}`);
  }
  reconcileWorkers(draft, d);
}

/** Starts the workers of a lost node elsewhere (the event `node_lost`). */
export function workersLost(draft: Draft, d: DeploymentRecord, event: EventOf<'node_lost'>): void {
  if (d.status !== 'running' || (isProjectStopped(draft) && isStoppedByPerson(draft))) return;
  const { node_id, silent = [], forced } = event;
  const { now } = draft.facts;
  const there = draft.workers(d).filter((one) => one.node_id === node_id && isWanted(one));
  if (!draft.workers(d).some((one) => one.node_id === node_id)) return;
  const hold = holdOf(draft, d, forced);
  const name = draft.node(node_id)?.hostname ?? node_id;
  const avoid: Avoid = [...new Set([node_id, ...silent])].map((id) => ({ node_id: id, at: now }));
  const before = new Set(draft.workers(d).map(({ id }) => id));
  for (const worker of there) {
    if (worker.state === 'starting') {
      endTaskOf(draft, d, worker.id, 'lost');
      addKeptDevices(draft, d, worker);
      const losses = [...worker.losses, ...avoid.slice(0, 1)];
      startWorkerElsewhere(draft, d, { ...worker, losses }, failure('node_lost', name), avoid);
      continue;
    }
    draft.putInstance({ ...worker, state: 'lost', detail: `${name} is silent`, since: now });
    if (hold !== null)
      draft.addLine(d, 'failover', `${labelOf(worker)} stays on ${name}, which is silent: ${hold}`);
  }
  if (hold === null) reconcileWorkers(draft, d, { avoid, isHeld: false });
  for (const worker of draft.workers(d))
    if (isWanted(worker) && !before.has(worker.id)) {
      const to =
        worker.node_id === null
          ? `waits for a node: ${worker.detail}`
          : `moves from ${name} to ${nameOf(draft, worker)}`;
      draft.addLine(d, 'failover', `${labelOf(worker)} ${to}; ${name} is silent`);
    }
  refreshHealth(draft, d);
}
