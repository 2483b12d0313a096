/**
 * Decides which deploy nodes are lost, so that their instances start elsewhere, and when nothing
 * moves (the brake). All times are by the uptime clock, so a jump of the machine's clock moves
 * nothing, and a control plane that was away starts to count at its return. Pure.
 *
 *   heard ── silent for the limit ──▶ lost ── the agent sends a request ──▶ heard
 *                └── more than half of the nodes became silent with it ──▶ held
 *
 * Limit: FAILOVER_AFTER for an agent that sends beats, the contract's offline time for any other.
 *
 * Brake: when most nodes become silent together, the network is a more likely cause than the nodes,
 * so nothing moves. For each silent node, the brake reads the nodes whose last request is newer, or
 * at most one hour older. It holds the node if more than half of them, and at least two, became
 * silent within one hour of it. The hour is relative to the last request of the node and not to now,
 * so a held node stays held until it returns, even after days or a restart of the control plane.
 */
import type { Uptime } from '../platform/uptime.ts';

/** When the agent of a deploy node was last heard. */
export type HeardNode = {
  id: string;
  hostname: string;
  host_ip: string;
  /** When the node got its address, by the uptime clock; null: unknown. */
  addressed_at: number | null;
  /** False: the agent sends no beats to this version of the control plane. */
  beats: boolean;
  /** Its last request, by the uptime clock; null: none since this process started. */
  heard_at: number | null;
  /** Its last list of containers, by the uptime clock. */
  observed_at: number | null;
  /** Its last registration, by the machine's clock. */
  last_seen_at: number;
};

export type SilentNode = {
  id: string;
  hostname: string;
  /** How long the agent has been silent in ms, by the uptime clock. */
  silentMs: number;
  /** True: its limit has passed, so it gets no new work while other nodes can take it. */
  isOverdue: boolean;
  /** True: its limit has passed, and nothing holds it. */
  isLost: boolean;
  /** Set while the brake holds the node. */
  brake: { silent: number; nodes: number } | null;
};

export type FailoverLimits = { failoverMs: number | null; offlineMs: number };

const HOUR_MS = 3_600_000;
/** Maximum difference in ms between the clocks of two control planes. */
const CLOCKS_DIFFER_MS = 5_000;

/**
 * Number of beat intervals by which the brake counts a node as silent early. Nodes that lose the
 * network together sent their last beats at different moments of one interval. Without this margin,
 * the first of them would move before the brake sees the others.
 */
const BEATS_MISSED = 1.5;

/** While FAILOVER_AFTER is `none`: silence in ms after which a person can move instances. */
const MANUAL_FAILOVER_MS = 30_000;

/**
 * Returns the nodes whose agents have been silent for FAILOVER_AFTER, sorted by name. While
 * FAILOVER_AFTER is `none`, no node is lost or held.
 */
export function silentNodes(
  nodes: readonly HeardNode[],
  { now, uptime }: { now: number; uptime: Uptime },
  { failoverMs, offlineMs }: FailoverLimits,
): SilentNode[] {
  const afterMs = failoverMs ?? MANUAL_FAILOVER_MS;
  const heard = nodes.map((node) => {
    const last = lastHeard(node, now, uptime);
    return { node, last, silentMs: uptime.at - Math.max(last, uptime.since) };
  });
  const silent = heard.filter(({ silentMs }) => silentMs >= afterMs);
  const beatsMs = quietMs(failoverMs);
  const counted = heard.filter(
    ({ node, silentMs }) => silentMs >= (node.beats ? afterMs - beatsMs : afterMs),
  );
  // Sort the times once: up to 10,000 nodes can be silent, and each is compared with all others.
  const [heardAt, countedAt] = [heard, counted].map((some) =>
    Float64Array.from(some, ({ last }) => last).sort(),
  ) as [Float64Array, Float64Array];
  return silent
    .map(({ node: { id, hostname, beats }, last, silentMs }) => {
      const all = heardAt.length - countBefore(heardAt, last - HOUR_MS);
      const silentTogether =
        countBefore(countedAt, last + HOUR_MS, true) - countBefore(countedAt, last - HOUR_MS);
      const isHeld = failoverMs !== null && silentTogether >= 2 && silentTogether * 2 > all;
      const limitMs = beats ? afterMs : Math.max(afterMs, offlineMs);
      return {
        id,
        hostname,
        silentMs,
        isOverdue: silentMs >= limitMs,
        isLost: failoverMs !== null && !isHeld && silentMs >= limitMs,
        brake: isHeld ? { silent: silentTogether, nodes: all } : null,
      };
    })
    .toSorted((a, b) => (a.hostname < b.hostname ? -1 : 1));
}

/** Returns how many of the sorted times are before `limit`, or at it if `inclusive`. */
function countBefore(times: Float64Array, limit: number, inclusive = false): number {
  let [low, high] = [0, times.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    const time = times[middle] as number;
    if (time < limit || (inclusive && time === limit)) low = middle + 1;
    else high = middle;
  }
  return low;
}

/**
 * Returns when the node was last heard, by the uptime clock. Ignores times in the future. If
 * nothing else is known, the silence begins at the start of this control plane.
 */
export function lastHeard(
  { heard_at, observed_at, last_seen_at }: HeardNode,
  now: number,
  { at, since }: Uptime,
): number {
  const past = [heard_at, observed_at].filter(
    (time) => time !== null && time <= at + CLOCKS_DIFFER_MS,
  ) as number[];
  if (past.length > 0) return Math.max(...past);
  // After a restart, only the registration of a contract-only agent is known, by the machine’s
  // clock.
  return last_seen_at > now + CLOCKS_DIFFER_MS ? since : at - Math.max(0, now - last_seen_at);
}

/** Returns the silence in ms after which an agent that sends beats counts as silent. */
export const quietMs = (failoverMs: number | null): number =>
  BEATS_MISSED * beatSeconds(failoverMs) * 1_000;

/** Returns the interval of the beats in seconds. */
export const beatSeconds = (failoverMs: number | null): number =>
  Math.min(10, (failoverMs ?? MANUAL_FAILOVER_MS) / 3_000);
