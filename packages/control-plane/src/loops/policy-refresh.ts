/** Looks whether another control plane changed what the gateways decide by: its word may have been lost. */
import type { LoopDeps } from './deps.ts';

export const policyRefresh =
  ({ policy }: LoopDeps) =>
  async (): Promise<void> => {
    await policy.refreshIfChanged();
  };
