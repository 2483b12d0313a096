/**
 * Whether a node was silent for the offline time: then another machine may take its name. By the uptime clock, so that no jump of the
 * machine's clock hands a live node over, and none keeps a dead one for a day; and only after a control plane has served for so long,
 * since until then nobody could be heard.
 *
 * `heardAt`: when this process heard of it last, by the uptime clock; null: not yet. `observed_at` is by that clock too, and tells what
 * another control plane heard; `last_seen_at` is by the machine's, and counts unless it lies in the future. Pure.
 */
import type { NodeRecord } from './records.ts';
import type { Uptime } from './uptime.ts';

export function isSilent(
  node: Pick<NodeRecord, 'last_seen_at' | 'observed_at'> & { heardAt: number | null },
  at: { now: number; uptime: Uptime },
  offlineMs: number,
): boolean {
  const { now, uptime } = at;
  const observedAt = node.observed_at === null || node.observed_at > uptime.at ? 0 : node.observed_at;
  const heardAt = Math.max(node.heardAt ?? 0, observedAt, uptime.since);
  const away = now - node.last_seen_at;
  return uptime.at - heardAt >= offlineMs && (away >= offlineMs || away < 0);
}
