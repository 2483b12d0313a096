/**
 * Warnings about nodes for /readyz, from their registrations. They are kept in memory, because an
 * agent registers every 30 s. With several control planes, each one knows only the nodes that
 * registered with it within `offlineMs`.
 */
import type { NodeRegister } from '@berth/wire/node';
import type { OperatorNote } from '@berth/wire/system';

export type NodeNotes = {
  kind: OperatorNote['kind'];
  registered(node: { id: string; hostname: string }, input: NodeRegister): void;
  /**
   * Returns lines with counts but no names, because /readyz is public. Leaves out nodes without a
   * registration within `offlineMs`.
   */
  notes(): string[];
};

/** Maximum number of nodes to keep. /readyz is public, so its work needs a limit. */
const MAX_NODES = 10_000;

/** Keeps the nodes that registered within `offlineMs`, by id. */
export function createRecentNodes<T extends { hostname: string }>({
  now,
  offlineMs,
}: {
  now: () => number;
  offlineMs: number;
}) {
  const nodes = new Map<string, T & { at: number }>();
  return {
    set(id: string, node: T): void {
      if (nodes.has(id) || nodes.size < MAX_NODES) nodes.set(id, { ...node, at: now() });
    },
    get: (id: string): T | undefined => nodes.get(id),
    delete: (id: string): void => void nodes.delete(id),
    all(): T[] {
      const oldest = now() - offlineMs;
      for (const [id, { at }] of nodes) if (at < oldest) nodes.delete(id);
      return [...nodes.values()];
    },
  };
}

/**
 * Formats a count as `2 nodes`. `kind`: the word before `nodes` with a space, such as `deploy `.
 */
export const countOf = (nodes: readonly unknown[], kind = ''): string =>
  `${nodes.length} ${kind}node${nodes.length === 1 ? '' : 's'}`;
