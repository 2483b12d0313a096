/** Reads the routes again even when nobody said they changed: another control plane may have changed them. Keeps them from counting as unsure. */
import type { LoopDeps } from './deps.ts';

export const routesRefresh =
  ({ source }: LoopDeps) =>
  async (): Promise<void> => {
    await source.refresh();
  };
