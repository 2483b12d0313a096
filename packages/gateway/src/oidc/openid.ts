/**
 * Sign-in with OpenID Connect: authorization code flow with PKCE, state, nonce and issuer check
 * (openid-client).
 */
import {
  allowInsecureRequests,
  authorizationCodeGrant,
  buildAuthorizationUrl,
  buildEndSessionUrl,
  calculatePKCECodeChallenge,
  type ClientAuth,
  ClientError,
  ClientSecretBasic,
  ClientSecretPost,
  type Configuration,
  customFetch,
  discovery,
  fetchUserInfo,
  None,
  ResponseBodyError,
  WWWAuthenticateChallengeError,
} from 'openid-client';
import { defined } from '@berth/kit/defined';
import type { Live } from '@berth/kit/live';
import { messageOf } from '@berth/kit/message-of';
import { Refusal } from '../login/refusal.ts';
import { type Fetch, ProviderUnavailable, PROVIDER_TIMEOUT_MS } from './fetch.ts';
import { createSignatures, type Signatures } from './id-token.ts';
import type { Claimed, Provider } from './provider.ts';

export type OpenidOptions = {
  id: string;
  label: string;
  issuer: string;
  clientId: string;
  /** A reload replaces the value. */
  clientSecret: Live<string | undefined>;
  /** True if the claim `hd` names the company that manages an account (Google). */
  hasHostedDomain?: boolean;
  /**
   * True if the provider accepts `prompt=select_account` without announcing it in its metadata
   * (Google).
   */
  acceptsSelectAccount?: boolean;
  fetch: Fetch;
  /** Clock for durations in ms. */
  monotonic: () => number;
};
type Discovered = { config: Configuration; signatures: Signatures; at: number };

/** Endpoints change rarely. A failed request also reloads the metadata. */
const METADATA_TTL_MS = 600_000;
/** Validity of a probe of the authorization endpoint, after a success and after a failure. */
const ALIVE_MS = 5_000;
const DEAD_MS = 2_000;
const PROBE_TIMEOUT_MS = 2_000;

export function createOpenidProvider(options: OpenidOptions): Provider {
  const issuer = new URL(options.issuer);
  // config.ts allows plain http only for loopback. The endpoints in the metadata must not be weaker
  // than the issuer.
  const insecure = issuer.protocol === 'http:';
  let cached: Discovered | null = null;
  let loading: Promise<Discovered> | null = null;

  async function load(): Promise<Discovered> {
    try {
      const config = await discovery(
        issuer,
        options.clientId,
        options.clientSecret(),
        clientAuth(options.clientSecret),
        {
          [customFetch]: (url, init) => options.fetch(url, init as RequestInit),
          timeout: Math.ceil(PROVIDER_TIMEOUT_MS / 1000),
          execute: insecure ? [allowInsecureRequests] : [],
        },
      );
      assertEndpoints(config, insecure);
      cached = {
        config,
        signatures: createSignatures(String(config.serverMetadata().jwks_uri), options.fetch),
        at: options.monotonic(),
      };
      return cached;
    } catch (error) {
      throw new ProviderUnavailable(`${options.id}: metadata: ${reasonOf(error)}`, {
        cause: error,
      });
    }
  }
  /**
   * Loads the metadata once for all waiting logins. If a reload fails, the old metadata stay in
   * use.
   */
  async function discovered(): Promise<Discovered> {
    if (cached !== null && options.monotonic() - cached.at < METADATA_TTL_MS) return cached;
    loading ??= load().finally(() => {
      loading = null;
    });
    if (cached === null) return loading;
    const old = cached;
    return loading.catch(() => old);
  }

  let probed: { at: number; error: Error | null } | null = null;
  let probing: Promise<void> | null = null;

  /**
   * Accepts every answer below 500, because the probe has none of the parameters that the endpoint
   * requires.
   */
  async function probe(url: string): Promise<void> {
    const at = options.monotonic();
    try {
      const { status } = await options.fetch(url, {
        signal: AbortSignal.timeout(PROBE_TIMEOUT_MS),
      });
      if (status >= 500)
        throw new ProviderUnavailable(`${options.id}: ${new URL(url).origin}: HTTP ${status}`);
      probed = { at, error: null };
    } catch (error) {
      probed = { at, error: error instanceof Error ? error : new Error(String(error)) };
      throw error;
    }
  }
  /**
   * Checks that the provider still answers before a browser is redirected to it; the metadata may
   * be minutes old. Probes one at a time.
   */
  async function assertAlive(config: Configuration): Promise<void> {
    const age = probed === null ? Number.POSITIVE_INFINITY : options.monotonic() - probed.at;
    if (probed !== null && age >= 0 && age < (probed.error === null ? ALIVE_MS : DEAD_MS)) {
      if (probed.error !== null) throw probed.error;
      return;
    }
    probing ??= probe(String(config.serverMetadata().authorization_endpoint)).finally(() => {
      probing = null;
    });
    await probing;
  }
  /**
   * Prefers an account choice if the provider supports it; every provider supports `login` (OpenID
   * Connect Core).
   */
  function promptOf(config: Configuration): string {
    const supported: unknown = config.serverMetadata()['prompt_values_supported'];
    const selects =
      options.acceptsSelectAccount === true ||
      (Array.isArray(supported) && supported.includes('select_account'));
    return selects ? 'select_account' : 'login';
  }

  return {
    id: options.id,
    label: options.label,
    async authorizationUrl(secrets, redirectUri, fresh) {
      const { config } = await discovered();
      await assertAlive(config);
      return buildAuthorizationUrl(config, {
        redirect_uri: redirectUri,
        scope: 'openid email profile',
        state: secrets.state,
        nonce: secrets.nonce,
        // RFC 9700 section 2.1.1: PKCE always, and S256 only.
        code_challenge: await calculatePKCECodeChallenge(secrets.verifier),
        code_challenge_method: 'S256',
        ...defined({ prompt: fresh ? promptOf(config) : undefined }),
      });
    },
    async signOutUrl(returnTo) {
      const found = await discovered().catch(() => null);
      const endpoint = found?.config.serverMetadata().end_session_endpoint;
      if (
        found === null ||
        endpoint === undefined ||
        !URL.canParse(endpoint) ||
        !mayLeadTo(endpoint, insecure)
      )
        return null;
      // Section 2 allows the client's id instead of an id_token_hint. The gateway does not store ID
      // tokens.
      return buildEndSessionUrl(found.config, { post_logout_redirect_uri: returnTo });
    },
    async issuer() {
      const metadata = (await discovered()).config.serverMetadata();
      return {
        issuer: metadata.issuer,
        named: metadata.authorization_response_iss_parameter_supported === true,
      };
    },
    async claims(callback, secrets) {
      const { config, signatures } = await discovered();
      try {
        const tokens = await authorizationCodeGrant(config, callback, {
          expectedState: secrets.state,
          expectedNonce: secrets.nonce,
          pkceCodeVerifier: secrets.verifier,
          idTokenExpected: true,
        });
        await signatures.verify(tokens.id_token ?? '');
        const claims = tokens.claims();
        if (claims === undefined) throw new Refusal('identity_refused', { detail: 'no ID token' });
        // OpenID Connect Core section 5.4: some providers return e-mail and profile only from the
        // userinfo endpoint.
        const more =
          claims['email'] === undefined && config.serverMetadata().userinfo_endpoint !== undefined
            ? await fetchUserInfo(config, tokens.access_token, claims.sub)
            : {};
        const all: Record<string, unknown> = { ...more, ...claims };
        const hd = all['hd'];
        return {
          ...claimed(all),
          ...defined({
            hosted_domain:
              options.hasHostedDomain === true ? (typeof hd === 'string' ? hd : null) : undefined,
          }),
        };
      } catch (error) {
        if (error instanceof Refusal) throw error;
        const translated = translate(options.id, error);
        // The endpoints may have changed, so the next login reloads the metadata.
        if (translated instanceof ProviderUnavailable) cached = null;
        throw translated;
      }
    },
  };
}

/**
 * Selects the client authentication from the provider's metadata (RFC 8414 section 2); the default
 * is client_secret_basic.
 */
function clientAuth(clientSecret: Live<string | undefined>): ClientAuth {
  return (server, client, body, headers) => {
    const secret = clientSecret();
    if (secret === undefined) return None()(server, client, body, headers);
    const methods = server.token_endpoint_auth_methods_supported ?? ['client_secret_basic'];
    const chosen =
      methods.includes('client_secret_basic') || !methods.includes('client_secret_post')
        ? ClientSecretBasic
        : ClientSecretPost;
    chosen(secret)(server, client, body, headers);
  };
}

/**
 * OpenID Connect Discovery section 3: the required endpoints exist and are not weaker than the
 * issuer (https).
 */
function assertEndpoints(config: Configuration, insecure: boolean): void {
  const metadata = config.serverMetadata();
  for (const name of [
    'authorization_endpoint',
    'token_endpoint',
    'jwks_uri',
    'userinfo_endpoint',
  ] as const) {
    const url = metadata[name];
    if (url === undefined && name === 'userinfo_endpoint') continue;
    if (typeof url !== 'string' || !URL.canParse(url) || !mayLeadTo(url, insecure))
      throw new Error(`the metadata contain no usable ${name}`);
  }
}

function mayLeadTo(url: string, insecure: boolean): boolean {
  const { protocol } = new URL(url);
  return protocol === 'https:' || (insecure && protocol === 'http:');
}

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

/**
 * Translates errors of openid-client by their codes. Details of responses are dropped, because they
 * may contain tokens.
 */
function translate(id: string, error: unknown): Error {
  const unreachable = causes(error).find((e) => e instanceof ProviderUnavailable);
  if (unreachable !== undefined) return unreachable;
  // RFC 6749 section 5.2
  if (error instanceof ResponseBodyError && error.error === 'invalid_grant')
    return new Refusal('code_refused', { cause: error });
  if (error instanceof ResponseBodyError && error.error === 'access_denied')
    return new Refusal('provider_denied', { cause: error });
  // RFC 6749 section 5.2: a 401 of the token endpoint names the required scheme. A bearer challenge
  // comes from the userinfo endpoint.
  if (
    error instanceof ResponseBodyError &&
    (error.error === 'invalid_client' || error.error === 'unauthorized_client')
  )
    return new Refusal('client_refused', { detail: `${id}: ${reasonOf(error)}`, cause: error });
  if (
    error instanceof WWWAuthenticateChallengeError &&
    !error.cause.some(({ scheme }) => scheme === 'bearer')
  )
    return new Refusal('client_refused', { detail: `${id}: HTTP ${error.status}`, cause: error });
  if (error instanceof ClientError && CLAIMS_WRONG.has(error.code ?? ''))
    return new Refusal('identity_refused', { detail: reasonOf(error), cause: error });
  return new ProviderUnavailable(`${id}: ${reasonOf(error)}`, { cause: error });
}

/** Error codes of an invalid ID token (OpenID Connect Core section 3.1.3.7). */
const CLAIMS_WRONG = new Set([
  'OAUTH_INVALID_RESPONSE',
  'OAUTH_JWT_CLAIM_COMPARISON_FAILED',
  'OAUTH_JWT_TIMESTAMP_CHECK_FAILED',
  'OAUTH_JSON_ATTRIBUTE_COMPARISON_FAILED',
  'OAUTH_UNSUPPORTED_OPERATION',
]);

function reasonOf(error: unknown): string {
  const inner = causes(error).find((e) => e instanceof ProviderUnavailable);
  if (inner !== undefined) return inner.message;
  if (error instanceof ResponseBodyError)
    return `${error.status} ${/^[\w.-]{1,60}$/.test(error.error) ? error.error : 'error'}`;
  if (error instanceof ClientError)
    return `${error.message}${error.code === undefined ? '' : ` (${error.code})`}`;
  return messageOf(error);
}

function causes(error: unknown): Error[] {
  const found: Error[] = [];
  for (let e = error; e instanceof Error && found.length < 5; e = e.cause) found.push(e);
  return found;
}
