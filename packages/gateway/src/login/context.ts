/** Shared dependencies of the gateway's own pages. install.ts creates the context once. */
import type { GatewayDeps } from '../deps.ts';
import type { Provider } from '../oidc/provider.ts';
import type { Attempts } from './attempts.ts';
import { Refusal } from './refusal.ts';
import type { Reports } from './report.ts';
import type { Sso } from './sso.ts';

export type Context = GatewayDeps & {
  /** Providers by id, in the order of the choice page. */
  providers: ReadonlyMap<string, Provider>;
  attempts: Attempts;
  sso: Sso;
  reports: Reports;
};

/**
 * Throws a Refusal if no policy is loaded. The policy lists disabled users and revocations, so
 * nobody can sign in without it.
 */
export function assertPolicyLoaded(
  { policy }: Pick<Context, 'policy'>,
  retryPath: string | null,
): void {
  if (!policy.view().loaded) throw new Refusal('policy_unknown', { retryPath });
}
