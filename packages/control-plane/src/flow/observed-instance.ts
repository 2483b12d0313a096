/**
 * Decides what the container lists of nodes mean for the instances of a deployment: an instance
 * fails, serves again, is replaced, or returns with its node. Pure.
 */
import type { ObservedContainer } from '@berth/wire/node';
import { isTerminal } from '@berth/wire/vocabulary';
import type { NodeFact } from '../domain/deployments/facts.ts';
import { failingCheckOf } from '../domain/deployments/failing-check.ts';
import {
  instanceLabel,
  type InstanceRecord,
  isContainerOf,
  isMovable,
  isWeb,
  ownLabel,
  wantedNumbers,
} from '../domain/deployments/instance.ts';
import type { DeploymentRecord, RouteRecord } from '../domain/platform/records.ts';
import { needsDevices } from '../domain/nodes/room.ts';
import type { EventOf } from './events.ts';
import {
  isFirstLost,
  nameOf,
  nextFirst,
  promote,
  publishServers,
  wantedCount,
} from './instance-route.ts';
import { endInstance, endTaskOf, instanceOfTask, isHeldBack, reconcile } from './instances.ts';
import type { Draft } from './plan-draft.ts';
import { stillHas } from './observe.ts';
import { isSameContainer, isStoppedContainer } from './reported-containers.ts';
import { isProjectStopped } from './stop.ts';
import { createRetireTask } from './tasks.ts';

/**
 * Handles the container of a further instance, or its absence. Returns false if the container is
 * that of the first instance.
 */
export function observedInstance(
  draft: Draft,
  d: DeploymentRecord,
  event: EventOf<'observed'>,
): boolean {
  const { container, node_id } = event;
  const instance = draft
    .instances(d)
    .find((one) =>
      container === null
        ? one.id === event.instance_id
        : isContainerOf(one, container, node_id) || isSameContainer(one, container),
    );
  if (instance === undefined) {
    if (container === null) return event.instance_id !== undefined;
    if (instanceLabel(container) === ownLabel(d)) return false;
    removeStrayContainer(draft, d, { container, node_id });
    return true;
  }
  if (instance.node_id !== node_id) {
    if (container !== null) instanceElsewhere(draft, d, instance, { container, node_id });
    return true;
  }
  if (instance.state !== 'starting' && instance.state !== 'draining')
    judgeInstance(draft, d, instance, container);
  return true;
}

/**
 * Handles a container on a node that its instance is not assigned to. If it is the instance's own
 * container and the assigned node no longer reports it, the machine was renamed: the instance moves
 * to the new node (observe.ts does the same for the first instance). Any other container is
 * removed.
 */
function instanceElsewhere(
  draft: Draft,
  d: DeploymentRecord,
  instance: InstanceRecord,
  { container, node_id }: { container: ObservedContainer; node_id: string },
): void {
  if (!isSameContainer(instance, container))
    return removeStrayContainer(draft, d, { container, node_id });
  const [own, node] = [draft.node(instance.node_id), draft.node(node_id)];
  if (node === undefined || instance.container_id === null) return;
  if (own !== undefined && (own.has_secret || stillHas(own, instance.container_id, draft.facts)))
    return;
  const moved = { ...instance, node_id, host_port: container.host_port ?? instance.host_port };
  draft.putInstance(moved);
  if (own !== undefined && needsDevices(d.settings))
    draft.plan.moveDevices = { deployment_id: d.id, from: own.id, to: node.id };
  draft.addLine(
    d,
    'node_changed',
    `${node.hostname} (${node.host_ip}) now reports the container of instance ${moved.number}, ` +
      `and ${own?.hostname ?? 'a deleted node'} does not; the route follows`,
  );
  if (isExpectedThere(moved)) judgeInstance(draft, d, moved, container);
  publishServers(draft, d);
}

/** Returns whether the node of the instance should report its container. */
export const isExpectedThere = ({ state }: Pick<InstanceRecord, 'state'>): boolean =>
  isMovable({ state }) || state === 'lost';

export const MISSING = 'its container is missing';

/** So many restarts in ten minutes are a restart loop. */
const LOOP_RESTARTS = 3;

export const isLoop = ({ restarts = 0 }: ObservedContainer): boolean => restarts >= LOOP_RESTARTS;

/** Returns why the container of a process without HTTP does not run; null if it does. */
export function whyNotUp(container: ObservedContainer | null): string | null {
  if (container === null) return MISSING;
  const { state, restarts = 0, exit_code = null, out_of_memory = false } = container;
  const code = exit_code === null ? '' : ` with exit code ${exit_code}`;
  const memory = out_of_memory ? ', out of memory' : '';
  if (isLoop(container)) return `it restarted ${restarts} times in the last ten minutes`;
  if (state === 'running') return null;
  if (state === 'restarting') return `it exited${code}${memory}; the engine restarts it`;
  return isStoppedContainer(container)
    ? `its container exited${code}${memory}`
    : `its container is ${state}`;
}

/** Returns why the container does not serve; null if it serves. */
function whyNotServing(container: ObservedContainer | null): string | null {
  if (container === null) return MISSING;
  if (container.state !== 'running') return `its container is ${container.state}`;
  if (container.host_port === null) return 'its container has no port';
  return failingCheckOf(container)?.text ?? null;
}

/**
 * Promotes an instance that serves if the first one does not serve, because the route always
 * contains the first one. Returns whether it did.
 */
export function promoteIfFirstFails(
  draft: Draft,
  d: DeploymentRecord,
  container: ObservedContainer | null,
): boolean {
  const detail = whyNotServing(container);
  return detail !== null && replaceFirst(draft, d, detail);
}

function replaceFirst(draft: Draft, d: DeploymentRecord, detail: string): boolean {
  if (d.status !== 'running' || isFirstLost(d)) return false;
  if (isProjectStopped(draft) || isHeldBack(draft, d)) return false;
  const other = nextFirst(draft, d);
  if (other === undefined) return false;
  promote(draft, d, other, { state: 'unhealthy', detail });
  return true;
}

/**
 * Time in ms after which an instance without a container is replaced: a single container list can
 * be outdated.
 */
export const MISSING_MS = 10_000;

/** Time in ms that the engine or the agent gets to start an exited container again. */
export const RESTART_MS = 10_000;

/**
 * Returns whether the container belongs to the instance and needs no decision: it serves at the
 * address in the route, or a task starts it.
 */
export function isInstanceAsExpected(
  instance: InstanceRecord,
  node: Pick<NodeFact, 'id' | 'host_ip'>,
  container: ObservedContainer,
  route: RouteRecord | null,
): boolean {
  if (instance.node_id !== node.id || !isContainerOf(instance, container, node.id)) return false;
  const { state, host_port } = instance;
  if (state === 'starting') return true;
  if (!isWeb(instance)) return state === 'serving' && whyNotUp(container) === null;
  if (state !== 'serving' || whyNotServing(container) !== null) return false;
  if (container.host_port !== host_port) return false;
  if (route?.deployment_id !== instance.deployment_id || route.stopped === true) return true;
  return (route.servers ?? []).some(
    (one) =>
      one.instance_id === instance.id &&
      one.host_ip === node.host_ip &&
      one.host_port === host_port,
  );
}

/** Removes the container of an instance that ended or runs elsewhere. */
export function removeStrayContainer(
  draft: Draft,
  d: DeploymentRecord,
  { container, node_id }: { container: ObservedContainer; node_id: string },
): void {
  const label = instanceLabel(container);
  const isBusy = draft.facts.tasks.some(
    (t) =>
      t.node_id === node_id &&
      (instanceOfTask(t) === label || (t.kind === 'retire' && t.deployment_id === d.id)),
  );
  if (isBusy || isTerminal(d.status)) return;
  createRetireTask(draft, draft.node(node_id), {
    of: d,
    remove: [{ deployment: d, reason: 'its instance ended or runs elsewhere', instance: label }],
    keep: null,
    drain: false,
  });
}

function judgeInstance(
  draft: Draft,
  d: DeploymentRecord,
  instance: InstanceRecord,
  container: ObservedContainer | null,
): void {
  const { now } = draft.facts;
  if (instance.state === 'lost') return lostInstanceReturned(draft, d, instance, container);
  const detail = whyNotServing(container);
  if (container === null || detail !== null) {
    if (container !== null && isLeftStopped(draft, d, instance, container)) {
      endInstance(draft, d, instance, 'its container stays stopped');
      return reconcile(draft, d);
    }
    if (instance.state === 'unhealthy') {
      if (container !== null || instance.detail !== MISSING) return;
      return replaceMissing(draft, d, instance);
    }
    draft.putInstance({ ...instance, state: 'unhealthy', detail, since: now });
    draft.addLine(d, 'instance', `instance ${instance.number} does not serve: ${detail}`);
  } else if (instance.state !== 'serving' || instance.host_port !== container.host_port) {
    if (instance.state === 'unhealthy' && mayNotAnswerYet(container, now)) return;
    draft.putInstance({
      ...instance,
      state: 'serving',
      detail: null,
      host_port: container.host_port,
      since: now,
    });
    draft.addLine(d, 'instance', `instance ${instance.number} serves again`);
    if (d.health?.status === 'unhealthy')
      replaceFirst(draft, d, d.health.detail ?? 'it does not serve');
  }
  publishServers(draft, d);
}

/**
 * Returns whether it is too early to say that the container serves: it started a moment ago (a
 * crash loop must not look healthy between two crashes), or its probe has no result yet.
 */
const mayNotAnswerYet = (container: ObservedContainer, now: number): boolean =>
  container.probe?.status === 'starting' || hasJustStarted(container, now);

export const hasJustStarted = ({ started_at }: ObservedContainer, now: number): boolean => {
  const age = now - Date.parse(started_at ?? '');
  return age >= 0 && age < RESTART_MS;
};

/**
 * Returns whether a container that was stopped for a newer version stays stopped although that
 * version failed.
 */
const isLeftStopped = (
  draft: Draft,
  d: DeploymentRecord,
  instance: InstanceRecord,
  container: ObservedContainer,
): boolean =>
  d.status === 'running' &&
  !isProjectStopped(draft) &&
  !isHeldBack(draft, d) &&
  isStoppedContainer(container) &&
  instance.state === 'unhealthy' &&
  draft.facts.now - instance.since >= RESTART_MS;

/** Starts another instance for one whose container somebody removed. */
function replaceMissing(draft: Draft, d: DeploymentRecord, instance: InstanceRecord): void {
  if (d.status !== 'running' || isHeldBack(draft, d)) return;
  if (draft.facts.now - instance.since < MISSING_MS) return;
  endTaskOf(draft, d, instance.id);
  draft.removeInstance(instance.id);
  const on = nameOf(draft, instance);
  draft.addLine(
    d,
    'instance',
    `instance ${instance.number} ends: its container is missing on ${on}`,
  );
  reconcile(draft, d);
}

/**
 * Handles the return of a lost instance. If the project needs it, it serves again; otherwise it is
 * removed.
 */
function lostInstanceReturned(
  draft: Draft,
  d: DeploymentRecord,
  instance: InstanceRecord,
  container: ObservedContainer | null,
): void {
  const present = wantedNumbers(d, draft.instances(d)).size;
  const serving =
    draft.instances(d).filter(({ state }) => state === 'serving').length + (isFirstLost(d) ? 0 : 1);
  const count = wantedCount(draft, d);
  if (
    container === null ||
    (present >= count && serving >= count) ||
    isReplaced(draft, d, instance)
  )
    return endReturned(draft, d, instance, container);
  if (container.state !== 'running' || container.host_port === null) return;
  draft.putInstance({
    ...instance,
    state: 'serving',
    detail: null,
    host_port: container.host_port,
    container_id: container.id ?? instance.container_id,
    since: draft.facts.now,
  });
  draft.addLine(d, 'instance', `instance ${instance.number} is back on ${nameOf(draft, instance)}`);
  publishServers(draft, d);
  reconcile(draft, d);
}

/** Returns whether another instance with this number serves. */
const isReplaced = (
  draft: Draft,
  d: DeploymentRecord,
  { id, number }: Pick<InstanceRecord, 'id' | 'number'>,
): boolean =>
  (!isFirstLost(d) && d.instance_number === number) ||
  draft.instances(d).some((i) => i.id !== id && i.number === number && i.state === 'serving');

/** Ends a lost instance whose node is back. If it ran beside its replacement, the story says so. */
function endReturned(
  draft: Draft,
  d: DeploymentRecord,
  instance: InstanceRecord,
  container: ObservedContainer | null,
): void {
  endInstance(draft, d, instance, 'its node returned, and others serve');
  if (!ranMeanwhile(container, instance.since)) return;
  const { process, number } = instance;
  draft.addLine(
    d,
    'failover',
    `${process} ${number} kept running on ${nameOf(draft, instance)} beside its replacement: only ` +
      'the connection of the node to Berth was cut',
  );
}

/** Returns whether the container ran while its node was silent, so that it was not restarted. */
const ranMeanwhile = (container: ObservedContainer | null, lostSince: number): boolean =>
  container?.state === 'running' && Date.parse(container.started_at ?? '') < lostSince;
