/**
 * Creates the route of a deployment, and checks whether the proxy's configuration leads to it.
 * Pure.
 */
import { LABELS } from '@berth/wire/vocabulary';
import type { ObservedContainer } from '@berth/wire/node';
import { isOwnContainer } from '../domain/deployments/instance.ts';
import { canonicalAddress } from '../domain/nodes/address.ts';
import { isOnline } from '../domain/nodes/placement.ts';
import type { NodeFact } from '../domain/deployments/facts.ts';
import type {
  DeploymentRecord,
  Failure,
  NodeRecord,
  RouteRecord,
} from '../domain/platform/records.ts';
import { type Draft, isBerthAgent } from './plan-draft.ts';
import type { EventOf } from './events.ts';
import { failure } from './failure.ts';

export const routeTo = (
  draft: Draft,
  d: DeploymentRecord,
  node: NodeRecord,
  host_port: number,
): { set: RouteRecord } => ({
  set: {
    project_id: d.project_id,
    deployment_id: d.id,
    node_id: node.id,
    domain_prefix: d.settings.domain_prefix,
    host_ip: node.host_ip,
    host_port,
    published_at: draft.facts.now,
  },
});

export type Rival = { container: ObservedContainer; node: NodeRecord };

/**
 * Returns a container of another deployment that runs at the address, from the last reports of the
 * nodes with this address. Ignores silent nodes, because a different machine might have their
 * address now. Does not ignore the node of this deployment, even if it is silent.
 */
export function rivalAt(
  { facts }: Draft,
  d: DeploymentRecord,
  { id, host_ip }: NodeRecord,
  host_port: number | null,
): Rival | null {
  const address = canonicalAddress(host_ip);
  for (const node of facts.nodes) {
    if (canonicalAddress(node.host_ip) !== address) continue;
    if (node.id !== id && !isOnline(node, facts.now, facts.limits)) continue;
    const container = node.containers.find(
      (c) =>
        c.state === 'running' && c.host_port === host_port && c.labels[LABELS.deployment] !== d.id,
    );
    if (container !== undefined) return { container, node };
  }
  return null;
}

/**
 * Returns the node that has the address of this container's silent node now; null if there is none.
 * A node that lists the container is the same machine under another name. A node that has listed
 * nothing yet, as a contract-only one never does, can be that too.
 */
export function holderOfAddress(
  draft: Draft,
  { node_id, container_id }: { node_id: string | null; container_id: string | null },
): NodeFact | null {
  const holder = draft.node(draft.facts.takenAddresses?.get(node_id ?? '') ?? null);
  if (holder === undefined || holder.observed_at === null) return null;
  return holder.containers.some((c) => c.id !== undefined && c.id === container_id) ? null : holder;
}

/**
 * Returns the route to a version that served before, or null if the last report of its node does
 * not show the container at its port: another project might use the port now. The next report that
 * shows the container publishes the route. A contract-only agent reports no containers.
 */
export function routeBack(draft: Draft, d: DeploymentRecord): { set: RouteRecord } | null {
  const node = draft.node(d.node_id);
  if (node === undefined) return null;
  const reported = lastSeen(draft, d);
  const reportedPort = reported?.state === 'running' ? reported.host_port : null;
  const port = isBerthAgent(node) && node.observed_at !== null ? reportedPort : d.host_port;
  if (port === null || rivalAt(draft, d, node, port) !== null) return null;
  if (holderOfAddress(draft, d) !== null) return null;
  // Keep the original publication time: if two routes have the same address, the newer one wins.
  return {
    set: {
      ...routeTo(draft, d, node, port).set,
      published_at: d.route_published_at ?? d.created_at,
    },
  };
}

/**
 * Returns the deployment's container from the last report of its node, or undefined if the report
 * has none.
 */
export function lastSeen(draft: Draft, d: DeploymentRecord): ObservedContainer | undefined {
  const own = draft.node(d.node_id)?.containers.filter((c) => isOwnContainer(d, c)) ?? [];
  // Ignore containers of earlier attempts.
  return own.find((c) => d.container_id === null || c.id === undefined || c.id === d.container_id);
}

/**
 * Returns whether the confirmed address still leads to the container. If the container restarted on
 * another port or the node got a new address after the publication, the proxy still routes to the
 * old address.
 */
export function leadsThere(
  draft: Draft,
  d: DeploymentRecord,
  { host_ip, host_port }: EventOf<'route_confirmed' | 'route_unreachable'>,
): boolean {
  const { route } = draft.facts;
  if (d.route_published_at === null || route?.deployment_id !== d.id) return false;
  if (route.host_ip !== host_ip || route.host_port !== host_port) return false;
  const seen = lastSeen(draft, d);
  return seen === undefined || (seen.state === 'running' && seen.host_port === host_port);
}

export function whyUnconfirmed(draft: Draft, d: DeploymentRecord): Failure {
  const reported = lastSeen(draft, d);
  if (reported !== undefined && reported.state !== 'running')
    return failure('container_exited', `it was ${reported.state} before its route was confirmed`);
  const seconds = draft.facts.limits.routeMs / 1000;
  return failure(
    'proxy_unconfirmed',
    `not within ${seconds} s; check the log of the proxy and PROXY_PROBE_URLS`,
  );
}
