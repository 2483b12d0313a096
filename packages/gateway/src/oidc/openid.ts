/**
 * Sign-in with OpenID Connect: authorization code flow with PKCE, state, nonce and issuer check
 * (openid-client).
 */
import {
  authorizationCodeGrant,
  buildAuthorizationUrl,
  buildEndSessionUrl,
  calculatePKCECodeChallenge,
  type Configuration,
  fetchUserInfo,
  type TokenEndpointResponse,
} from 'openid-client';
import { defined } from '@berth/kit/defined';
import { Refusal } from '../login/refusal.ts';
import { ProviderUnavailable } from './fetch.ts';
import { assertAlive, type Liveness, newLiveness } from './liveness.ts';
import {
  discovered,
  isAllowedUrl,
  type Metadata,
  type MetadataOptions,
  newMetadata,
} from './metadata.ts';
import { translate } from './openid-errors.ts';
import type { Claimed, Provider } from './provider.ts';

export type OpenidOptions = MetadataOptions & {
  label: string;
  /** True if the claim `hd` names the company that manages an account (Google). */
  hasHostedDomain?: boolean;
  /**
   * True if the provider accepts `prompt=select_account` without announcing it in its metadata
   * (Google).
   */
  acceptsSelectAccount?: boolean;
};

type Openid = { options: OpenidOptions; metadata: Metadata; liveness: Liveness };

export function createOpenidProvider(options: OpenidOptions): Provider {
  const openid: Openid = {
    options,
    metadata: newMetadata(options),
    liveness: newLiveness(options),
  };
  return {
    id: options.id,
    label: options.label,
    authorizationUrl: (secrets, redirectUri, fresh) =>
      authorizationUrl(openid, secrets, redirectUri, fresh),
    signOutUrl: (returnTo) => signOutUrl(openid.metadata, returnTo),
    issuer: () => issuerOf(openid.metadata),
    claims: (callback, secrets) => claims(openid, callback, secrets),
  };
}

async function authorizationUrl(
  { options, metadata, liveness }: Openid,
  secrets: Parameters<Provider['authorizationUrl']>[0],
  redirectUri: string,
  fresh: boolean,
): Promise<URL> {
  const { config } = await discovered(metadata);
  await assertAlive(liveness, String(config.serverMetadata().authorization_endpoint));
  return buildAuthorizationUrl(config, {
    redirect_uri: redirectUri,
    scope: 'openid email profile',
    state: secrets.state,
    nonce: secrets.nonce,
    // RFC 9700 section 2.1.1: PKCE always, and S256 only.
    code_challenge: await calculatePKCECodeChallenge(secrets.verifier),
    code_challenge_method: 'S256',
    ...defined({ prompt: fresh ? promptOf(options, config) : undefined }),
  });
}

/**
 * Prefers an account choice if the provider supports it; every provider supports `login` (OpenID
 * Connect Core).
 */
function promptOf({ acceptsSelectAccount }: OpenidOptions, config: Configuration): string {
  const supported: unknown = config.serverMetadata()['prompt_values_supported'];
  const selects =
    acceptsSelectAccount === true ||
    (Array.isArray(supported) && supported.includes('select_account'));
  return selects ? 'select_account' : 'login';
}

async function signOutUrl(metadata: Metadata, returnTo: string): Promise<URL | null> {
  const current = await discovered(metadata).catch(() => null);
  const endpoint = current?.config.serverMetadata().end_session_endpoint;
  if (current === null || endpoint === undefined || !URL.canParse(endpoint)) return null;
  if (!isAllowedUrl(endpoint, metadata.insecure)) return null;
  // Section 2 allows the client's id instead of an id_token_hint. The gateway does not store ID
  // tokens.
  return buildEndSessionUrl(current.config, { post_logout_redirect_uri: returnTo });
}

async function issuerOf(metadata: Metadata): Promise<{ issuer: string; named: boolean }> {
  const server = (await discovered(metadata)).config.serverMetadata();
  return {
    issuer: server.issuer,
    named: server.authorization_response_iss_parameter_supported === true,
  };
}

async function claims(
  { options, metadata }: Openid,
  callback: Parameters<Provider['claims']>[0],
  secrets: Parameters<Provider['claims']>[1],
): Promise<Claimed> {
  const { config, signatures } = await discovered(metadata);
  try {
    const tokens = await authorizationCodeGrant(config, callback, {
      expectedState: secrets.state,
      expectedNonce: secrets.nonce,
      pkceCodeVerifier: secrets.verifier,
      idTokenExpected: true,
    });
    await signatures.verify(tokens.id_token ?? '');
    const idToken = tokens.claims();
    if (idToken === undefined) throw new Refusal('identity_refused', { detail: 'no ID token' });
    const all: Record<string, unknown> = {
      ...(await userInfo(config, tokens, idToken)),
      ...idToken,
    };
    const hostedDomain = options.hasHostedDomain === true ? domainIn(all['hd']) : undefined;
    return { ...claimed(all), ...defined({ hosted_domain: hostedDomain }) };
  } catch (error) {
    if (error instanceof Refusal) throw error;
    const translated = translate(options.id, error);
    // The endpoints can have changed, so the next login reloads the metadata.
    if (translated instanceof ProviderUnavailable) metadata.cached = null;
    throw translated;
  }
}

/**
 * OpenID Connect Core section 5.4: some providers return e-mail and profile only from the userinfo
 * endpoint.
 */
async function userInfo(
  config: Configuration,
  { access_token: accessToken }: TokenEndpointResponse,
  idToken: { sub: string; email?: unknown },
): Promise<Record<string, unknown>> {
  const hasEndpoint = config.serverMetadata().userinfo_endpoint !== undefined;
  if (idToken.email !== undefined || !hasEndpoint) return {};
  return fetchUserInfo(config, accessToken, idToken.sub);
}

const domainIn = (hd: unknown): string | null => (typeof hd === 'string' ? hd : null);

function claimed(claims: Record<string, unknown>): Claimed {
  const text = (value: unknown): string | null =>
    typeof value === 'string' && value !== '' ? value : null;
  return {
    email: text(claims['email']),
    // OpenID Connect Core section 5.1 defines a boolean, but some providers send text. An absent
    // claim means not verified.
    verified: claims['email_verified'] === true || claims['email_verified'] === 'true',
    name: text(claims['name']) ?? text(claims['preferred_username']),
    avatar_url: text(claims['picture']),
  };
}
