/**
 * Warns about nodes whose container engine does not answer the agent. Without a report the engine
 * counts as working.
 */
import { createRecentNodes, countOf, type NodeNotes } from './node-notes.ts';

const WAITS = { builder: 'builds wait', deploy: 'deployments wait' } as const;

export function createNodeEngines(clock: { now: () => number; offlineMs: number }): NodeNotes {
  const nodes = createRecentNodes<{ hostname: string; role: keyof typeof WAITS; works: boolean }>(
    clock,
  );
  return {
    kind: 'other',
    registered({ id, hostname }, { role, engine }) {
      nodes.set(id, { hostname, role, works: engine?.ok !== false });
    },
    notes() {
      const seen = nodes.all();
      return (['builder', 'deploy'] as const).flatMap((role) => {
        const all = seen.filter((n) => n.role === role);
        const dead = all.filter((n) => !n.works);
        if (dead.length === 0) return [];
        return dead.length === all.length
          ? [`the container engine answers on no ${role} node (${countOf(dead)}): ${WAITS[role]}`]
          : [
              `the container engine does not answer on ${dead.length} of ` +
                `${countOf(all, `${role} `)}, which get no tasks: berth status names them`,
            ];
      });
    },
  };
}
