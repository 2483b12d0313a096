/**
 * Writes the marks in memory: when each node was last seen and polled. A crash loses the marks of
 * about a second.
 */
import type { LoopDeps } from './deps.ts';

export const nodeMarks =
  ({ stores }: LoopDeps) =>
  async (): Promise<void> => {
    await stores.nodes.flush();
  };
