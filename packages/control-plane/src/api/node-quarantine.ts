/** Remembers which containers of unknown deployments each node has, for the log and /readyz. */
import { createRecentNodes, countOf } from './node-notes.ts';

export type Quarantine = {
  /**
   * Records the containers of a registration. Returns whether they differ from the registration
   * before.
   */
  seen(node: { id: string; hostname: string }, containers: readonly string[]): boolean;
  notes(): string[];
};

export function createQuarantine(clock: { now: () => number; offlineMs: number }): Quarantine {
  const nodes = createRecentNodes<{ hostname: string; containers: string }>(clock);
  return {
    seen({ id, hostname }, names) {
      const containers = [...names].sort().join(', ');
      const before = nodes.get(id)?.containers ?? '';
      if (containers === '') nodes.delete(id);
      else nodes.set(id, { hostname, containers });
      return containers !== before;
    },
    notes() {
      const all = nodes.all();
      if (all.length === 0) return [];
      return [
        `containers of unknown deployments are in quarantine on ${countOf(all)}: berth status ` +
          'names them, and only people remove them',
      ];
    },
  };
}
