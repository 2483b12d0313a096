/**
 * Instances of a deployment. The first one is the deployment row itself (`node_id`, `host_port`,
 * `container_id`); each further instance is an InstanceRecord. A deployment with one instance has no
 * record. Pure.
 *
 * When the first one is lost and another one serves, the two change places (flow/instances.ts
 * `promote`), so that the node of the deployment is always that of its first serving instance.
 */
import type { InstanceQuery } from '@berth/wire/instance-fields';
import type { ObservedContainer, Placement } from '@berth/wire/node';
import { WEB } from '@berth/wire/project';
import { type InstanceState, LABELS } from '@berth/wire/vocabulary';
import type { DeploymentRecord, NodeLoss, ProjectSettings } from '../platform/records.ts';
import { invalid } from '../platform/errors.ts';
import { finalName } from '../projects/container-name.ts';

export { WEB };

export type InstanceRecord = {
  id: string;
  project_id: string;
  deployment_id: string;
  process: string;
  /** From 1. A replacement has the number of the instance that it replaces. */
  number: number;
  state: InstanceState;
  /**
   * False: its container has no label with its id, because it was the first instance when it
   * started.
   */
  labelled: boolean;
  node_id: string | null;
  host_port: number | null;
  container_id: string | null;
  /** Why it does not serve, for people; null if it serves. */
  detail: string | null;
  /** Memory limit in bytes, 0: none; null: that of the deployment, which is the limit of `web`. */
  memory_bytes: number | null;
  losses: NodeLoss[];
  placement: Placement | null;
  since: number;
  created_at: number;
};

/** Changes of a plan. */
export type InstanceChange = { put: InstanceRecord } | { remove: string };

/** Returns the label of the container of the first instance; null if it has no such label. */
export const ownLabel = (d: Pick<DeploymentRecord, 'instance_id'>): string | null => d.instance_id;

/** Returns the number of the instance whose container has no label of an instance. */
export const unlabelledNumber = (
  d: Pick<DeploymentRecord, 'instance_id' | 'instance_number'>,
): number => (ownLabel(d) === null ? d.instance_number : 1);

export const instanceLabel = ({ labels }: Pick<ObservedContainer, 'labels'>): string | null =>
  labels[LABELS.instance] ?? null;

/**
 * Returns the container with the label of its instance. An agent of 0.2.0 does not report this
 * label, but the id of a container tells the instance too.
 */
export function withInstanceLabel<C extends Pick<ObservedContainer, 'id' | 'labels'>>(
  container: C,
  d: Pick<DeploymentRecord, 'container_id' | 'instance_id'>,
  others: readonly Pick<InstanceRecord, 'container_id' | 'id' | 'labelled'>[],
): C {
  const { id, labels } = container;
  if (id === undefined || instanceLabel(container) !== null) return container;
  const label =
    id === d.container_id
      ? ownLabel(d)
      : (others.find((one) => one.labelled && one.container_id === id)?.id ?? null);
  return label === null
    ? container
    : { ...container, labels: { ...labels, [LABELS.instance]: label } };
}

/** Returns whether the container is that of the first instance of the deployment. */
export const isOwnContainer = (
  d: Pick<DeploymentRecord, 'id' | 'instance_id'>,
  container: Pick<ObservedContainer, 'labels'>,
): boolean =>
  container.labels[LABELS.deployment] === d.id && instanceLabel(container) === ownLabel(d);

/** Returns whether the container, reported by the node, is that of the instance. */
export const isContainerOf = (
  instance: Pick<InstanceRecord, 'id' | 'deployment_id' | 'labelled' | 'node_id'>,
  container: Pick<ObservedContainer, 'labels'>,
  nodeId: string,
): boolean =>
  container.labels[LABELS.deployment] === instance.deployment_id &&
  (instance.labelled
    ? instanceLabel(container) === instance.id
    : instanceLabel(container) === null && instance.node_id === nodeId);

/**
 * Returns whether the instance counts towards the count of its process: it waits, starts, serves or
 * is unhealthy.
 */
export const isWanted = ({ state }: Pick<InstanceRecord, 'state'>): boolean =>
  state === 'waiting' || state === 'starting' || state === 'serving' || state === 'unhealthy';

/** Throws `validation` if the filter names a process that these settings do not have. */
export function checkProcess(
  { processes }: Pick<ProjectSettings, 'processes'>,
  { process }: InstanceQuery,
): void {
  const names = processes.map(({ name }) => name);
  if (process !== undefined && !names.includes(process))
    throw invalid('process', 'process', `no such process; the processes are ${names.join(', ')}`);
}

/** Returns whether a request with this filter asks for the instance. */
export const isAskedFor = (
  { process, instance }: InstanceQuery,
  of: Pick<InstanceRecord, 'process' | 'number'>,
): boolean =>
  (process === undefined || process === of.process) &&
  (instance === undefined || instance === of.number);

/**
 * Returns the numbers of the wanted instances (`isWanted`) and of the first one, unless it is lost.
 * An instance and its replacement have one number, so they count once.
 */
export function wantedNumbers(
  d: Pick<DeploymentRecord, 'instance_number' | 'lost_since'>,
  others: readonly InstanceRecord[],
): Set<number> {
  const first = d.lost_since === null ? [d.instance_number] : [];
  return new Set([...first, ...others.filter(isWanted).map(({ number }) => number)]);
}

/**
 * Returns whether the deployment has exactly `count` wanted instances. `isHeld`: lost instances
 * wait for their nodes, so they count too (flow/instances.ts `reconcile`).
 */
export function isCountReached(
  d: Pick<DeploymentRecord, 'instance_number' | 'lost_since'>,
  others: readonly InstanceRecord[],
  { count, isHeld }: { count: number; isHeld: boolean },
): boolean {
  const numbers = wantedNumbers(d, others);
  if (isHeld) for (const { state, number } of others) if (state === 'lost') numbers.add(number);
  return numbers.size === count;
}

/**
 * Returns the replacement of an instance that serves on a drained node: another one with its number
 * that does not serve yet. It takes the place of the instance when it answers.
 */
export const replacementOf = (
  instance: Pick<InstanceRecord, 'process' | 'number'> & { id: string | null },
  others: readonly InstanceRecord[],
): InstanceRecord | undefined =>
  others.find(
    ({ id, process, number, state }) =>
      id !== instance.id &&
      process === instance.process &&
      number === instance.number &&
      (state === 'starting' || state === 'waiting'),
  );

/** Returns whether a drain of the node moves the instance: its container has already served. */
export const isMovable = ({ state }: Pick<InstanceRecord, 'state'>): boolean =>
  state === 'serving' || state === 'unhealthy';

/**
 * Returns all instances of a deployment by number. A deployment that neither starts nor runs has
 * none, and the first instance of a stopped one has ended.
 */
export const allInstances = (
  d: DeploymentRecord,
  others: readonly InstanceRecord[],
): InstanceRecord[] =>
  d.status === 'deploying' || d.status === 'running'
    ? [...firstInstance(d), ...others].toSorted(
        (a, b) => rankOf(d, a) - rankOf(d, b) || a.number - b.number,
      )
    : [];

/** Returns the position of the process in the list of the project. */
const rankOf = ({ settings }: DeploymentRecord, { process }: InstanceRecord): number =>
  settings.processes.findIndex(({ name }) => name === process);

export const isWeb = ({ process }: Pick<InstanceRecord, 'process'>): boolean => process === WEB;

/** Returns the first instance, which is the deployment itself, as a record; empty if it has none. */
function firstInstance(d: DeploymentRecord): InstanceRecord[] {
  // Only a running deployment that is stopped has no health.
  if (d.node_id === null || (d.status === 'running' && d.health === null)) return [];
  return [
    {
      id: d.instance_id ?? d.id,
      project_id: d.project_id,
      deployment_id: d.id,
      process: WEB,
      number: d.instance_number,
      labelled: d.instance_id !== null,
      node_id: d.node_id,
      host_port: d.host_port,
      container_id: d.container_id,
      memory_bytes: null,
      losses: [],
      placement: d.placement,
      created_at: d.created_at,
      ...firstState(d),
    },
  ];
}

function firstState(d: DeploymentRecord): Pick<InstanceRecord, 'state' | 'detail' | 'since'> {
  const { health } = d;
  const since = health?.since ?? d.state_since;
  const detail = health?.detail ?? null;
  if (d.lost_since !== null) return { state: 'lost', detail, since: d.lost_since };
  if (health?.status === 'unknown') return { state: 'lost', detail, since };
  if (health?.status === 'unhealthy') return { state: 'unhealthy', detail, since };
  if (d.status === 'deploying' && d.host_port === null)
    return { state: 'starting', detail: null, since };
  // Ignore `degraded` and `drifted`: they do not mean that this instance fails.
  const serves = health === null || health.status === 'healthy';
  return { state: 'serving', detail: null, since: serves ? since : (d.finished_at ?? since) };
}

/**
 * Returns the name that the container of an instance gets after the switch. The first `web` instance
 * on a machine has the name of the contract.
 */
export function instanceName(
  d: Pick<DeploymentRecord, 'node_id' | 'settings'>,
  others: readonly InstanceRecord[],
  instance: Pick<InstanceRecord, 'id' | 'process' | 'number' | 'node_id'>,
): string {
  const base = finalName(d.settings);
  const isFirstThere =
    instance.process === WEB &&
    d.node_id !== instance.node_id &&
    !others.some(
      (other) =>
        other.id !== instance.id &&
        isWanted(other) &&
        other.process === WEB &&
        other.node_id === instance.node_id &&
        other.number < instance.number,
    );
  return isFirstThere ? base : `${base}-${instance.process}-${instance.number}`;
}

/**
 * Returns the container name of an instance that is added to a running version. The other
 * containers keep their names, so it gets the name of the contract only if it is alone on its
 * machine.
 */
export function joiningName(
  d: Pick<DeploymentRecord, 'node_id' | 'settings'>,
  others: readonly InstanceRecord[],
  instance: Pick<InstanceRecord, 'id' | 'process' | 'number' | 'node_id'>,
): string {
  const isAlone =
    d.node_id !== instance.node_id &&
    !others.some((other) => other.id !== instance.id && other.node_id === instance.node_id);
  const base = finalName(d.settings);
  return isAlone ? base : `${base}-${instance.process}-${instance.number}`;
}

/**
 * Returns the `count` lowest numbers that are free: not `first` (null: the first one is lost), not
 * `reserved`, and not the number of a wanted instance.
 */
export function freeNumbers(
  first: number | null,
  others: readonly InstanceRecord[],
  count: number,
  reserved: readonly number[] = [],
): number[] {
  const wanted = others.filter(isWanted).map(({ number }) => number);
  const taken = new Set([first, ...wanted, ...reserved]);
  const free: number[] = [];
  for (let number = 1; free.length < count; number++) if (!taken.has(number)) free.push(number);
  return free;
}
