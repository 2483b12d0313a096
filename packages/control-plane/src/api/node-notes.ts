/**
 * What registers say of nodes that an operator should know, as lines of /readyz. In memory: an agent registers every 30 s. Of several
 * control planes each knows the nodes that registered with it within `offlineMs`.
 */
import type { NodeRegister } from '@berth/wire/node';

export type NodeNotes = {
  registered(node: { id: string; hostname: string }, input: NodeRegister): void;
  /** Lines with host names alone: the page is public. A node that was silent for `offlineMs` is left out. */
  notes(): string[];
};

const MOST_NAMED = 5;
/** Of nodes that are kept. /readyz is public, so its work has a bound. */
const MOST_NODES = 10_000;

/** Nodes by id that registered within `offlineMs`. */
export function createRecentNodes<T extends { hostname: string }>({ now, offlineMs }: { now: () => number; offlineMs: number }) {
  const nodes = new Map<string, T & { at: number }>();
  return {
    set(id: string, node: T): void {
      if (nodes.has(id) || nodes.size < MOST_NODES) nodes.set(id, { ...node, at: now() });
    },
    delete: (id: string): void => void nodes.delete(id),
    all(): T[] {
      const oldest = now() - offlineMs;
      for (const [id, { at }] of nodes) if (at < oldest) nodes.delete(id);
      return [...nodes.values()];
    },
  };
}

export function namesOf(nodes: readonly { hostname: string }[]): string {
  const names = nodes.slice(0, MOST_NAMED).map(({ hostname }) => hostname);
  return names.join(', ') + (nodes.length > MOST_NAMED ? ` and ${nodes.length - MOST_NAMED} more` : '');
}
