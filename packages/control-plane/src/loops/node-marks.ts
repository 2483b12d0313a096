/** Writes what was only marked: when each node was last seen and polled. A crash loses what was heard since the last run, a second or so. */
import type { LoopDeps } from './deps.ts';

export const nodeMarks =
  ({ stores }: LoopDeps) =>
  async (): Promise<void> => {
    await stores.nodes.flush();
  };
