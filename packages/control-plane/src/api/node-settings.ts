/**
 * Deploy nodes that lack a setting which protects them (`publish_ip`, `default_memory` of a register), for /readyz. In memory: an agent
 * registers every 30 s. Of several control planes each knows the nodes that registered with it within `offlineMs`.
 * An agent that sends neither field is not judged: it may be older, or implement the contract alone.
 */
import type { NodeRegister } from '@berth/wire/node';

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

const MOST_NAMED = 5;
/** Of nodes kept in memory for one setting. /readyz is public, so its work has a bound. */
const MOST_NODES = 10_000;

type Seen = { hostname: string; at: number };

export type NodeSettings = {
  registered(node: { id: string; hostname: string }, input: NodeRegister): void;
  /** One line for each setting, with host names alone. A node that was silent for `offlineMs` is left out. */
  notes(): string[];
};

export function createNodeSettings({ now, offlineMs }: { now: () => number; offlineMs: number }): NodeSettings {
  const lacking = LACKS.map((lack) => ({ ...lack, nodes: new Map<string, Seen>() }));
  return {
    registered({ id, hostname }, input) {
      for (const { field, nodes } of lacking) {
        if (input.role !== 'deploy' || input[field] !== null) nodes.delete(id);
        else if (nodes.has(id) || nodes.size < MOST_NODES) nodes.set(id, { hostname, at: now() });
      }
    },
    notes() {
      const oldest = now() - offlineMs;
      return lacking.flatMap(({ setting, so, nodes }) => {
        for (const [id, { at }] of nodes) if (at < oldest) nodes.delete(id);
        if (nodes.size === 0) return [];
        const names = Array.from(nodes.values(), ({ hostname }) => hostname)
          .slice(0, MOST_NAMED)
          .join(', ');
        const more = nodes.size > MOST_NAMED ? ` and ${nodes.size - MOST_NAMED} more` : '';
        return [`${setting} is not set on ${names}${more}: ${so}`];
      });
    },
  };
}
