/** Creates the configured identity providers, in the order of the choice page. */
import type { GatewayDeps } from '../deps.ts';
import { createProviderFetch } from './fetch.ts';
import { createGithubProvider } from './github.ts';
import { createOpenidProvider } from './openid.ts';
import type { Provider } from './provider.ts';

/** Google's issuer for OpenID Connect Discovery. */
const GOOGLE_ISSUER = 'https://accounts.google.com';

export type ProviderOverrides = {
  /** Replaces Google's issuer in tests. */
  googleIssuer?: string;
  /** Time limit of one answer in ms. */
  timeoutMs?: number;
  monotonic?: () => number;
};

/** `secrets` returns the client secrets, which a reload can replace. */
export function createProviders(
  { config, secrets }: Pick<GatewayDeps, 'config' | 'secrets'>,
  overrides: ProviderOverrides = {},
): Map<string, Provider> {
  const monotonic = overrides.monotonic ?? (() => performance.now());
  const fetch = createProviderFetch(overrides.timeoutMs);
  const list: Provider[] = [];
  if (config.OIDC_ISSUER !== undefined && config.OIDC_CLIENT_ID !== undefined)
    list.push(
      createOpenidProvider({
        id: config.OIDC_NAME,
        label: config.OIDC_NAME === 'oidc' ? 'single sign-on' : config.OIDC_NAME,
        issuer: config.OIDC_ISSUER,
        clientId: config.OIDC_CLIENT_ID,
        clientSecret: () => secrets().oidc,
        fetch,
        monotonic,
      }),
    );
  if (config.GITHUB_CLIENT_ID !== undefined && config.GITHUB_CLIENT_SECRET !== undefined)
    list.push(
      createGithubProvider({
        clientId: config.GITHUB_CLIENT_ID,
        clientSecret: () => secrets().github ?? '',
        url: config.GITHUB_URL,
        apiUrl: config.GITHUB_API_URL,
        fetch,
      }),
    );
  if (config.GOOGLE_CLIENT_ID !== undefined && config.GOOGLE_CLIENT_SECRET !== undefined)
    list.push(
      createOpenidProvider({
        id: 'google',
        label: 'Google',
        issuer: overrides.googleIssuer ?? GOOGLE_ISSUER,
        clientId: config.GOOGLE_CLIENT_ID,
        clientSecret: () => secrets().google,
        hasHostedDomain: true,
        acceptsSelectAccount: true,
        fetch,
        monotonic,
      }),
    );
  return new Map(list.map((provider) => [provider.id, provider]));
}
