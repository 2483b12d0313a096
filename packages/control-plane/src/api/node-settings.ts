/**
 * Warns about deploy nodes without a protective setting (`publish_ip`, `default_memory` of a
 * registration). An agent that does not send a field gets no warning for it: it might be older or
 * contract-only.
 */
import { createRecentNodes, countOf, type NodeNotes } from './node-notes.ts';

const PROTECTIVE_SETTINGS = [
  {
    field: 'publish_ip',
    setting: 'PUBLISH_IP',
    effect: 'published ports of containers there are reachable on every address of the machine',
  },
  {
    field: 'default_memory',
    setting: 'DEFAULT_MEMORY',
    effect: 'containers of projects without a memory limit may use all memory of the machine',
  },
] as const;

export function createNodeSettings(clock: { now: () => number; offlineMs: number }): NodeNotes {
  const settingsWithNodes = PROTECTIVE_SETTINGS.map((entry) => ({
    ...entry,
    nodes: createRecentNodes<{ hostname: string }>(clock),
  }));
  return {
    kind: 'setting_missing',
    registered({ id, hostname }, input) {
      for (const { field, nodes } of settingsWithNodes) {
        if (input.role !== 'deploy' || input[field] !== null) nodes.delete(id);
        else nodes.set(id, { hostname });
      }
    },
    notes() {
      return settingsWithNodes.flatMap(({ setting, effect, nodes }) => {
        const all = nodes.all();
        return all.length === 0 ? [] : [`${setting} is not set on ${countOf(all)}: ${effect}`];
      });
    },
  };
}
