/**
 * Writes the marks in memory: when each node was last seen and polled. A crash loses the marks of
 * about a second.
 */
import type { NodeStore } from '../domain/nodes/node-store.ts';

export type Deps = {
  nodes: Pick<NodeStore, 'flush'>;
};

export const nodeMarks =
  ({ nodes }: Deps) =>
  async (): Promise<void> => {
    await nodes.flush();
  };
