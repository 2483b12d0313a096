/**
 * Checks whether another control plane changed the policy of the gateways, because its notification
 * might be lost.
 */
import type { PolicySource } from '../domain/identity/policy.ts';

export type Deps = {
  policy: Pick<PolicySource, 'refreshIfChanged'>;
};

export const policyRefresh =
  ({ policy }: Deps) =>
  async (): Promise<void> => {
    await policy.refreshIfChanged();
  };
