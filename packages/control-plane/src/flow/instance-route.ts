/**
 * The addresses of a deployment's instances: which servers its route lists, which instance is the
 * first one, and the health `degraded`. Pure.
 */
import { defined } from '@berth/kit/defined';
import type { DeployPayload } from '@berth/wire/task';
import {
  instanceName,
  type InstanceRecord,
  isMovable,
  isWanted,
  isWeb,
  ownLabel,
  replacementOf,
  WEB,
} from '../domain/deployments/instance.ts';
import { countFor } from '../domain/deployments/instance-count.ts';
import { awaitsContainer, waitingFor } from '../domain/deployments/wait-reason.ts';
import type { DeploymentRecord, RouteRecord, RouteServer } from '../domain/platform/records.ts';
import { type Draft, isBerthAgent } from './plan-draft.ts';
import { holderOfAddress, routeTo } from './route.ts';

/**
 * Returns how many instances of `web` the deployment should have now. At count 0, a new version
 * still starts one, to prove that it answers (flow/stop.ts).
 */
export const wantedCount = ({ facts }: Draft, d: DeploymentRecord): number =>
  Math.max(1, countFor(d, facts.project));

export const isFirstLost = (d: Pick<DeploymentRecord, 'lost_since'>): boolean =>
  d.lost_since !== null;

export const nameOf = (draft: Draft, { node_id }: Pick<InstanceRecord, 'node_id'>): string =>
  draft.node(node_id)?.hostname ?? 'a deleted node';

export const replaces = (instance: InstanceRecord, other: InstanceRecord): boolean =>
  isMovable(other) && replacementOf(other, [instance]) !== undefined;

/** Returns whether the instance serves, and its address is still that of its machine. */
export const canTakeRequests = (draft: Draft, instance: InstanceRecord): boolean =>
  instance.state === 'serving' && holderOfAddress(draft, instance) === null;

/** Returns a further instance that can take the place of the first one. */
export const nextFirst = (draft: Draft, d: DeploymentRecord): InstanceRecord | undefined =>
  draft.instances(d).find((instance) => canTakeRequests(draft, instance));

/**
 * Returns the addresses of the serving instances, without the first one and without those whose
 * address another machine has now.
 */
export function serversOf(draft: Draft, d: DeploymentRecord): RouteServer[] {
  return draft.instances(d).flatMap((instance) => {
    const node = draft.node(instance.node_id);
    return instance.host_port === null || node === undefined || !canTakeRequests(draft, instance)
      ? []
      : [
          {
            instance_id: instance.id,
            node_id: node.id,
            host_ip: node.host_ip,
            host_port: instance.host_port,
          },
        ];
  });
}

/** Adds the servers to a route of the deployment. */
export function withServers(draft: Draft, d: DeploymentRecord, route: RouteRecord): RouteRecord {
  const { servers: _, ...first } = route;
  const servers = serversOf(draft, d);
  return { ...first, ...defined({ servers: servers.length === 0 ? undefined : servers }) };
}

/** Updates the servers of the route, if the route is that of the deployment. */
export function publishServers(draft: Draft, d: DeploymentRecord): void {
  const route =
    draft.plan.route === null || !('set' in draft.plan.route)
      ? draft.facts.route
      : draft.plan.route.set;
  if (route?.deployment_id !== d.id || route.stopped === true) return;
  const next = withServers(draft, d, route);
  if (sameServers(route.servers ?? [], next.servers ?? [])) return;
  draft.plan.route = { set: { ...next, published_at: draft.facts.now } };
}

const sameServers = (a: readonly RouteServer[], b: readonly RouteServer[]): boolean =>
  a.length === b.length &&
  a.every((one, i) => {
    const other = b[i];
    return (
      one.instance_id === other?.instance_id &&
      one.host_ip === other.host_ip &&
      one.host_port === other.host_port
    );
  });

/**
 * Returns the detail of the health `degraded` while the first instance serves; null if all serve. A
 * lost instance counts only if it has no replacement.
 */
export function degradedDetail(
  d: Pick<DeploymentRecord, 'instance_number'>,
  others: readonly InstanceRecord[],
): string | null {
  const details = [webDetail(d, others.filter(isWeb)), ...workerDetails(others)];
  const text = details.filter((one) => one !== null).join('; ');
  return text === '' ? null : text;
}

/** Says for each process without HTTP how many of its instances run, if some do not, and why. */
function workerDetails(others: readonly InstanceRecord[]): string[] {
  const workers = others.filter((one) => !isWeb(one));
  return [...Map.groupBy(workers, ({ process }) => process)].flatMap(([process, rows]) => {
    const failing = rows.filter(
      (one) => one.state !== 'serving' && !rows.some((other) => replaces(one, other)),
    );
    const first = failing.find(({ detail }) => detail !== null);
    if (failing.length === 0) return [];
    const why = first === undefined ? '' : `: ${process} ${first.number} ${stateText(first)}`;
    return [`${rows.length - failing.length} of ${rows.length} instances of ${process} run${why}`];
  });
}

const stateText = ({ state, detail }: InstanceRecord): string =>
  `${state === 'waiting' ? 'waits' : `is ${state}`}: ${detail}`;

function webDetail(
  { instance_number }: Pick<DeploymentRecord, 'instance_number'>,
  others: readonly InstanceRecord[],
): string | null {
  if (others.length === 0) return null;
  // The replacement of an instance on a drained node does not count: it serves later.
  const wanted = others.filter(
    (i) => isWanted(i) && i.number !== instance_number && !others.some((o) => replaces(i, o)),
  );
  const held = others.filter(
    ({ state, number }) =>
      state === 'lost' &&
      number !== instance_number &&
      !wanted.some((other) => other.number === number),
  );
  const serving = 1 + others.filter(({ state }) => state === 'serving').length;
  const all = 1 + wanted.length + held.length;
  return serving === all ? null : `${serving} of ${all} instances serve`;
}

/** Updates the health after a change of the instances, while the first one serves. */
export function refreshHealth(draft: Draft, stored: DeploymentRecord): void {
  const d = presentOf(draft, stored);
  const { health } = d;
  if (d.status !== 'running' || isFirstLost(d)) return;
  if (health?.status !== 'healthy' && health?.status !== 'degraded') return;
  const detail = degradedDetail(d, [...draft.instances(d), ...draft.workers(d)]);
  const status = detail === null ? 'healthy' : 'degraded';
  if (status === health.status && (status === 'healthy' || detail === health.detail)) return;
  draft.set(d, { health: { status, since: draft.facts.now, detail } });
  draft.addLine(
    d,
    'health',
    detail === null ? 'healthy: all instances serve' : `degraded: ${detail}`,
  );
}

/** Returns the deployment with the changes of this plan. */
export const presentOf = (draft: Draft, d: DeploymentRecord): DeploymentRecord => ({
  ...d,
  ...draft.plan.changeDeployments.find(({ id }) => id === d.id)?.set,
});

/** Returns the state that a lost first instance gets when `promote` replaces it. */
export const lostAs = (draft: Draft, d: DeploymentRecord): EarlierFirst => ({
  state: 'lost',
  detail: `${draft.node(d.node_id)?.hostname ?? 'its node'} is silent`,
});

type EarlierFirst = { state: 'lost' | 'draining' | 'unhealthy'; detail: string };

/**
 * Promotes a serving instance: it becomes the first one of its deployment. The earlier first one
 * becomes a record with the state `as`, or ends if `as` is null.
 */
export function promote(
  draft: Draft,
  d: DeploymentRecord,
  instance: InstanceRecord,
  as: EarlierFirst | null,
): void {
  const { now, route } = draft.facts;
  const node = draft.node(instance.node_id);
  if (node === undefined || instance.host_port === null) return;
  endFirstTask(draft, d);
  const before = draft.node(d.node_id);
  draft.removeInstance(instance.id);
  // An instance on a deleted node gets no record, because the node does not return. A contract-only
  // agent would never list the container of a lost one: a person removes it
  // (domain/nodes/unmanaged-containers.ts).
  if (as !== null && before !== undefined && (as.state !== 'lost' || isBerthAgent(before)))
    draft.putInstance({
      id: ownLabel(d) ?? draft.freshId(),
      labelled: ownLabel(d) !== null,
      project_id: d.project_id,
      deployment_id: d.id,
      process: WEB,
      number: d.instance_number,
      ...as,
      node_id: d.node_id,
      host_port: d.host_port,
      container_id: d.container_id,
      memory_bytes: null,
      losses: [],
      placement: d.placement,
      since: now,
      created_at: d.created_at,
    });
  draft.set(d, {
    node_id: node.id,
    host_port: instance.host_port,
    container_id: instance.container_id,
    instance_id: instance.labelled ? instance.id : null,
    instance_number: instance.number,
    lost_since: null,
    ...defined({ placement: instance.placement ?? undefined }),
    health: { status: 'healthy', since: now, detail: null },
  });
  if (awaitsContainer(d)) draft.set(d, waitingFor(null));
  const why = as === null ? 'its node was deleted' : as.detail;
  draft.addLine(
    d,
    as?.state === 'lost' ? 'failover' : 'instance',
    `${instance.process} ${instance.number} on ${node.hostname} (${node.host_ip}) takes over from ` +
      `${WEB} ${d.instance_number}: ${why}`,
  );
  if (route === null || route.deployment_id === d.id)
    draft.plan.route = {
      set: withServers(draft, d, routeTo(draft, d, node, instance.host_port).set),
    };
}

/** Ends the creation of a container for the earlier first instance (flow/creation.ts). */
function endFirstTask(draft: Draft, d: DeploymentRecord): void {
  if (d.status !== 'running') return;
  for (const { id, attempt, kind, payload } of draft.openTasks(d))
    if (kind === 'deploy' && (payload as DeployPayload).instance === undefined)
      draft.task({ id, attempt, end: 'cancelled' });
}

/** Returns the names that the containers of the instances on the node get after the switch. */
export function finalNamesOf(
  draft: Draft,
  d: DeploymentRecord,
  nodeId: string,
): { deployment_id: string; instance_id: string; name: string }[] {
  const others = draft.instances(d);
  return [...others, ...draft.workers(d)]
    .filter((i) => i.node_id === nodeId && i.state === 'serving' && i.labelled)
    .map((i) => ({
      deployment_id: d.id,
      instance_id: i.id,
      name: instanceName(d, others, i),
    }));
}
