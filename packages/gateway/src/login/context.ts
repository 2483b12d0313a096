/** What the endpoints of the gateway's own pages share; made once in install.ts. */
import type { GatewayDeps } from '../deps.ts';
import type { Provider } from '../oidc/provider.ts';
import type { Attempts } from './attempts.ts';
import { Refusal } from './refusal.ts';
import type { Reports } from './report.ts';
import type { Sso } from './sso.ts';

export type Context = GatewayDeps & {
  /** By id, in the order of the choice page. */
  providers: ReadonlyMap<string, Provider>;
  attempts: Attempts;
  sso: Sso;
  reports: Reports;
};

/** In doubt nobody comes in: who is disabled and what is revoked stands in the policy. */
export function assertPolicyKnown({ policy }: Pick<Context, 'policy'>, again: string | null): void {
  if (!policy.view().known) throw new Refusal('policy_unknown', { again });
}
