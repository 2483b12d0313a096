/**
 * Checks whether another control plane changed the policy of the gateways, because its notification
 * may have been lost.
 */
import type { LoopDeps } from './deps.ts';

export const policyRefresh =
  ({ policy }: LoopDeps) =>
  async (): Promise<void> => {
    await policy.refreshIfChanged();
  };
