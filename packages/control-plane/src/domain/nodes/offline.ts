/**
 * Decides whether a node has been silent for the offline time; after that a different machine can
 * take its name. Uses the uptime clock, so that a jump of the machine's clock neither displaces a
 * live node nor protects a dead one. No node counts as offline until the control plane has itself
 * served for the offline time: before its start, nodes could not register.
 *
 * `heardAt`: uptime of the last registration at this process, or null. `observed_at` uses the same
 * clock and includes other control planes. `last_seen_at` uses the machine's clock and is ignored
 * if it is in the future. Pure.
 */
import type { NodeRecord } from '../platform/records.ts';
import type { Uptime } from '../platform/uptime.ts';

export function isSilent(
  node: Pick<NodeRecord, 'last_seen_at' | 'observed_at'> & { heardAt: number | null },
  at: { now: number; uptime: Uptime },
  offlineMs: number,
): boolean {
  const { now, uptime } = at;
  const observedAt =
    node.observed_at === null || node.observed_at > uptime.at ? 0 : node.observed_at;
  const heardAt = Math.max(node.heardAt ?? 0, observedAt, uptime.since);
  const away = now - node.last_seen_at;
  return uptime.at - heardAt >= offlineMs && (away >= offlineMs || away < 0);
}
