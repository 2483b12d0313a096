/**
 * Finds the silent nodes whose address another machine has now: a node that got the address after
 * the silent one was last heard. Several agents of one machine share an address, and an agent that
 * is stopped does not stop its containers. So a node that had the address before is no evidence.
 * All times are by the uptime clock. Pure.
 */
import type { Uptime } from '../platform/uptime.ts';
import { canonicalAddress } from './address.ts';
import { type FailoverLimits, type HeardNode, lastHeard, quietMs } from './failover.ts';

/** Maps a silent node to the node that has its address now; both are ids. */
export type TakenAddresses = ReadonlyMap<string, string>;

export function takenAddresses(
  nodes: readonly HeardNode[],
  { now, uptime }: { now: number; uptime: Uptime },
  { failoverMs, offlineMs }: FailoverLimits,
): TakenAddresses {
  // An agent that is heard again a moment later shares its address with the new node.
  const silent = nodes.flatMap((node) => {
    const last = lastHeard(node, now, uptime);
    const limitMs = node.beats ? quietMs(failoverMs) : offlineMs;
    return uptime.at - Math.max(last, uptime.since) >= limitMs
      ? [{ ...node, last, address: canonicalAddress(node.host_ip) }]
      : [];
  });
  if (silent.length === 0) return new Map();
  const newest = newestAt(new Set(silent.map(({ address }) => address)), nodes);
  return new Map(
    silent.flatMap(({ id, last, address }) => {
      const holder = newest.get(address);
      const isLater = holder !== undefined && (holder.addressed_at ?? 0) > last;
      return isLater && holder.id !== id ? [[id, holder.id]] : [];
    }),
  );
}

/** Returns the node that got each of the addresses last. */
function newestAt(
  addresses: ReadonlySet<string>,
  nodes: readonly HeardNode[],
): Map<string, HeardNode> {
  const newest = new Map<string, HeardNode>();
  for (const node of nodes) {
    const address = canonicalAddress(node.host_ip);
    if (node.addressed_at === null || !addresses.has(address)) continue;
    const other = newest.get(address);
    if (other === undefined || node.addressed_at > (other.addressed_at ?? 0))
      newest.set(address, node);
  }
  return newest;
}
