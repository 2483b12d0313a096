/**
 * Reads the routes regularly, because another control plane may have changed them. Otherwise the
 * configuration would count as unsure.
 */
import type { LoopDeps } from './deps.ts';

export const routesRefresh =
  ({ source }: LoopDeps) =>
  async (): Promise<void> => {
    await source.refresh();
  };
