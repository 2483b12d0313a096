/**
 * Deploy nodes that lack a setting which protects them (`publish_ip`, `default_memory` of a register).
 * An agent that sends neither field is not judged: it may be older, or implement the contract alone.
 */
import { createRecentNodes, namesOf, type NodeNotes } from './node-notes.ts';

const LACKS = [
  {
    field: 'publish_ip',
    setting: 'PUBLISH_IP',
    so: 'ports of containers there answer on every address of the machine',
  },
  {
    field: 'default_memory',
    setting: 'DEFAULT_MEMORY',
    so: 'containers of projects without a memory limit may use all memory of the machine',
  },
] as const;

export function createNodeSettings(clock: { now: () => number; offlineMs: number }): NodeNotes {
  const lacking = LACKS.map((lack) => ({ ...lack, nodes: createRecentNodes<{ hostname: string }>(clock) }));
  return {
    registered({ id, hostname }, input) {
      for (const { field, nodes } of lacking) {
        if (input.role !== 'deploy' || input[field] !== null) nodes.delete(id);
        else nodes.set(id, { hostname });
      }
    },
    notes() {
      return lacking.flatMap(({ setting, so, nodes }) => {
        const all = nodes.all();
        return all.length === 0 ? [] : [`${setting} is not set on ${namesOf(all)}: ${so}`];
      });
    },
  };
}
