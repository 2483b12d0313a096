/**
 * Writes the marks in memory to the database: when each node was last seen and when it polled. A
 * crash loses about one second of marks.
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
