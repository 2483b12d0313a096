/**
 * Decides what happens to a route whose address leads elsewhere now: another container answers there
 * (the event `address_taken`), or another machine has the address of a silent node (the event
 * `node_replaced`). Pure.
 */
import { isOnline } from '../domain/nodes/placement.ts';
import type { InstanceRecord } from '../domain/deployments/instance.ts';
import type { DeploymentRecord } from '../domain/platform/records.ts';
import type { EventOf } from './events.ts';
import {
  isFirstLost,
  lostAs,
  nextFirst,
  promote,
  publishServers,
  refreshHealth,
} from './instance-route.ts';
import { type Draft, isBerthAgent } from './plan-draft.ts';
import { holderOfAddress, lastSeen } from './route.ts';
import { isProjectStopped } from './stop.ts';

/**
 * Takes the first instance out of the route, because another container now answers at its address.
 * The next report that shows its own container brings it back.
 */
export function addressTaken(
  draft: Draft,
  d: DeploymentRecord,
  event: EventOf<'address_taken'>,
): void {
  if (instanceAddressTaken(draft, d, event)) return refreshHealth(draft, d);
  const { host_ip, host_port, holder, isRouted } = event;
  const { route, now, limits } = draft.facts;
  if (
    route?.deployment_id !== d.id ||
    route.stopped === true ||
    route.host_ip !== host_ip ||
    route.host_port !== host_port
  )
    return;
  const node = draft.node(d.node_id);
  const reported = lastSeen(draft, d);
  // If the node's address changed, its next container list decides about the route.
  const isThere = node !== undefined && node.host_ip === host_ip && isOnline(node, now, limits);
  const isOwn = isThere && (reported === undefined || reported.host_port === host_port);
  if (!isRouted && isOwn) return;
  leaveAddress(draft, d, `its address ${host_ip}:${host_port} now belongs to ${holder}`);
}

/**
 * Lets another instance take the place of the first one, or withdraws the route if no other one
 * serves.
 */
function leaveAddress(draft: Draft, d: DeploymentRecord, why: string): void {
  const { now, limits } = draft.facts;
  const other = nextFirst(draft, d);
  if (other !== undefined) {
    promote(
      draft,
      d,
      other,
      isFirstLost(d) ? lostAs(draft, d) : { state: 'unhealthy', detail: why },
    );
    return refreshHealth(draft, d);
  }
  draft.plan.route = { remove: { project_id: d.project_id } };
  const node = draft.node(d.node_id);
  const isSilent = node === undefined || !isOnline(node, now, limits);
  const detail = `${isSilent ? `${whySilent(draft, d)}; ` : ''}${why}, so it gets no requests`;
  draft.set(d, { health: { status: isSilent ? 'unknown' : 'unhealthy', since: now, detail } });
  draft.addLine(d, 'route_withdrawn', detail);
}

/**
 * Takes an instance out of the route, because another container answers at its address. Returns
 * false if the address is not that of a further instance.
 */
function instanceAddressTaken(
  draft: Draft,
  d: DeploymentRecord,
  { host_ip, host_port, holder }: EventOf<'address_taken'>,
): boolean {
  const server = draft.facts.route?.servers?.find(
    (one) => one.host_ip === host_ip && one.host_port === host_port,
  );
  const instance = draft.instances(d).find(({ id }) => id === server?.instance_id);
  if (instance === undefined) return false;
  endRequests(draft, d, instance, `its address ${host_ip}:${host_port} now belongs to ${holder}`);
  publishServers(draft, d);
  return true;
}

function endRequests(
  draft: Draft,
  d: DeploymentRecord,
  instance: InstanceRecord,
  detail: string,
): void {
  draft.putInstance({ ...instance, state: 'unhealthy', detail, since: draft.facts.now });
  draft.addLine(d, 'instance', `instance ${instance.number} gets no requests: ${detail}`);
}

/**
 * Ends the requests to a silent node whose address another machine has now. Nothing starts
 * elsewhere: that is a failover. A repeated event changes nothing.
 */
export function nodeReplaced(
  draft: Draft,
  d: DeploymentRecord,
  { node_id }: EventOf<'node_replaced'>,
): void {
  const { route } = draft.facts;
  if (isProjectStopped(draft) || d.status !== 'running') return;
  const there = draft.instances(d).filter((i) => i.node_id === node_id && i.state === 'serving');
  for (const instance of there) {
    const why = whyNotThere(draft, instance);
    if (why !== null) endRequests(draft, d, instance, why);
  }
  const isRouted = d.node_id === node_id && route?.deployment_id === d.id && route.stopped !== true;
  const why = isRouted ? whyNotThere(draft, d) : null;
  if (why !== null) return leaveAddress(draft, d, why);
  if (there.length === 0) return;
  publishServers(draft, d);
  refreshHealth(draft, d);
}

function whyNotThere(
  draft: Draft,
  at: { node_id: string | null; container_id: string | null },
): string | null {
  const [node, holder] = [draft.node(at.node_id), holderOfAddress(draft, at)];
  if (node === undefined || holder === null) return null;
  return (
    `${node.hostname} is silent, and another machine, ${holder.hostname}, has its address ` +
    `${node.host_ip} now`
  );
}

export function whySilent({ facts, node: nodeOf }: Draft, d: DeploymentRecord): string {
  const node = nodeOf(d.node_id);
  if (node === undefined) return 'its node does not exist any more';
  if (!isOnline(node, facts.now, facts.limits)) return `${node.hostname} is offline`;
  return isBerthAgent(node)
    ? `${node.hostname} registers, but does not report its containers`
    : `${node.hostname} registers, but its agent does not report containers`;
}
