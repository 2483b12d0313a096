/** Reads which nodes are silent now, for the loop, the API and the metrics. */
import type { UptimeClock } from '../platform/uptime.ts';
import { type FailoverLimits, type SilentNode, silentNodes } from './failover.ts';
import type { NodeStore } from './node-store.ts';
import { takenAddresses, type TakenAddresses } from './taken-address.ts';

export type FailoverWatch = {
  /** Returns the silent deploy nodes, by name (failover.ts). */
  silent(): Promise<SilentNode[]>;
  /**
   * Returns the ids of the nodes that were overdue at the last call of `silent`, which the loop
   * repeats each second.
   */
  overdue(): ReadonlySet<string>;
  /** Returns the silent nodes whose address another machine had at the last call of `silent`. */
  taken(): TakenAddresses;
};

export function createFailoverWatch({
  nodes,
  uptime,
  limits,
  now,
}: {
  nodes: Pick<NodeStore, 'heardNodes'>;
  uptime: Pick<UptimeClock, 'now'>;
  limits: FailoverLimits;
  now: () => number;
}): FailoverWatch {
  let overdue: ReadonlySet<string> = new Set();
  let taken: TakenAddresses = new Map();
  return {
    async silent() {
      // Read the clock first: an agent that is heard after that is not silent.
      const at = { now: now(), uptime: await uptime.now() };
      const heard = await nodes.heardNodes();
      const silent = silentNodes(heard, at, limits);
      taken = takenAddresses(heard, at, limits);
      overdue = new Set(silent.filter(({ isOverdue }) => isOverdue).map(({ id }) => id));
      return silent;
    },
    overdue: () => overdue,
    taken: () => taken,
  };
}
