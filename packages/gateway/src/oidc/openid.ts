/** OpenID Connect: authorization code flow with PKCE, state, nonce and issuer check, by openid-client. */
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
import { Refusal } from '../login/refusal.ts';
import { type Fetch, ProviderUnavailable, PROVIDER_TIMEOUT_MS } from './fetch.ts';
import { createSignatures, type Signatures } from './id-token.ts';
import type { Claimed, Provider } from './provider.ts';

export type OpenidOptions = {
  id: string;
  label: string;
  issuer: string;
  clientId: string;
  clientSecret: string | undefined;
  /** Whether `hd` says which company manages an account (Google). */
  saysHostedDomain?: boolean;
  /** Whether it takes `prompt=select_account`, although its metadata say nothing of it (Google). */
  choosesAccount?: boolean;
  fetch: Fetch;
  now: () => number;
};
type Discovered = { config: Configuration; signatures: Signatures; at: number };

/** Endpoints move seldom; an answer that fails makes them be asked for anew whatever their age. */
const METADATA_TTL_MS = 600_000;
/** How long the address that browsers are sent to counts as alive, or as dead, after it was asked. */
const ALIVE_MS = 5_000;
const DEAD_MS = 2_000;
const PROBE_TIMEOUT_MS = 2_000;

export function createOpenidProvider(options: OpenidOptions): Provider {
  const issuer = new URL(options.issuer);
  // INTERFACES: plain http is for loopback only (config.ts sees to it); the metadata may not lead anywhere weaker.
  const insecure = issuer.protocol === 'http:';
  let known: Discovered | null = null;
  let asking: Promise<Discovered> | null = null;

  async function ask(): Promise<Discovered> {
    try {
      const config = await discovery(issuer, options.clientId, options.clientSecret, clientAuth(options.clientSecret), {
        [customFetch]: (url, init) => options.fetch(url, init as RequestInit),
        timeout: Math.ceil(PROVIDER_TIMEOUT_MS / 1000),
        // oxlint-disable-next-line no-deprecated -- so marked to stand out; the case it is meant for: a provider on this very machine.
        execute: insecure ? [allowInsecureRequests] : [],
      });
      assertEndpoints(config, insecure);
      known = { config, signatures: createSignatures(String(config.serverMetadata().jwks_uri), options.fetch), at: options.now() };
      return known;
    } catch (error) {
      throw new ProviderUnavailable(`${options.id}: metadata: ${reasonOf(error)}`, { cause: error });
    }
  }
  /** One question at a time, however many logins wait for it; the old answer serves where a new one cannot be had. */
  async function discovered(): Promise<Discovered> {
    if (known !== null && options.now() - known.at < METADATA_TTL_MS) return known;
    asking ??= ask().finally(() => {
      asking = null;
    });
    if (known === null) return asking;
    const old = known;
    return asking.catch(() => old);
  }

  let probed: { at: number; error: Error | null } | null = null;
  let probing: Promise<void> | null = null;

  /** Any answer but an error of the server itself will do: the request lacks all that the endpoint needs. */
  async function probe(url: string): Promise<void> {
    const at = options.now();
    try {
      const { status } = await options.fetch(url, { signal: AbortSignal.timeout(PROBE_TIMEOUT_MS) });
      if (status >= 500) throw new ProviderUnavailable(`${options.id}: ${new URL(url).origin}: HTTP ${status}`);
      probed = { at, error: null };
    } catch (error) {
      probed = { at, error: error instanceof Error ? error : new Error(String(error)) };
      throw error;
    }
  }
  /** Metadata are kept for minutes; a browser must not be sent to a provider that has died meanwhile. One question at a time. */
  async function assertAlive(config: Configuration): Promise<void> {
    const age = probed === null ? Number.POSITIVE_INFINITY : options.now() - probed.at;
    if (probed !== null && age >= 0 && age < (probed.error === null ? ALIVE_MS : DEAD_MS)) {
      if (probed.error !== null) throw probed.error;
      return;
    }
    probing ??= probe(String(config.serverMetadata().authorization_endpoint)).finally(() => {
      probing = null;
    });
    await probing;
  }
  /** What the provider understands; `login` stands in OpenID Connect Core, a choice of accounts is kinder. */
  function promptOf(config: Configuration): string {
    const known: unknown = config.serverMetadata()['prompt_values_supported'];
    return options.choosesAccount === true || (Array.isArray(known) && known.includes('select_account')) ? 'select_account' : 'login';
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
        ...(fresh ? { prompt: promptOf(config) } : {}),
      });
    },
    async signOutUrl(returnTo) {
      const found = await discovered().catch(() => null);
      const endpoint = found?.config.serverMetadata().end_session_endpoint;
      if (found === null || endpoint === undefined || !URL.canParse(endpoint) || !mayLeadTo(endpoint, insecure)) return null;
      // Section 2: the client's id in place of an id_token_hint; the ID token is not kept.
      return buildEndSessionUrl(found.config, { post_logout_redirect_uri: returnTo });
    },
    async issuer() {
      const metadata = (await discovered()).config.serverMetadata();
      return { issuer: metadata.issuer, named: metadata.authorization_response_iss_parameter_supported === true };
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
        // OpenID Connect Core section 5.4: e-mail and profile may be had at the userinfo endpoint only.
        const more =
          claims['email'] === undefined && config.serverMetadata().userinfo_endpoint !== undefined
            ? await fetchUserInfo(config, tokens.access_token, claims.sub)
            : {};
        const all: Record<string, unknown> = { ...more, ...claims };
        const hd = all['hd'];
        return { ...claimed(all), ...(options.saysHostedDomain === true ? { hosted_domain: typeof hd === 'string' ? hd : null } : {}) };
      } catch (error) {
        if (error instanceof Refusal) throw error;
        const translated = translate(options.id, error);
        // It may have moved: the next login asks where its endpoints are.
        if (translated instanceof ProviderUnavailable) known = null;
        throw translated;
      }
    },
  };
}

/** RFC 8414 section 2: how the client may show who it is, as the provider's metadata say; client_secret_basic where they say nothing. */
function clientAuth(secret: string | undefined): ClientAuth {
  if (secret === undefined) return None();
  const basic = ClientSecretBasic(secret);
  const post = ClientSecretPost(secret);
  return (server, client, body, headers) => {
    const methods = server.token_endpoint_auth_methods_supported ?? ['client_secret_basic'];
    const chosen = methods.includes('client_secret_basic') || !methods.includes('client_secret_post') ? basic : post;
    chosen(server, client, body, headers);
  };
}

/** OpenID Connect Discovery section 3: what is needed is there, and leads nowhere weaker than the issuer itself. */
function assertEndpoints(config: Configuration, insecure: boolean): void {
  const metadata = config.serverMetadata();
  for (const name of ['authorization_endpoint', 'token_endpoint', 'jwks_uri', 'userinfo_endpoint'] as const) {
    const url = metadata[name];
    if (url === undefined && name === 'userinfo_endpoint') continue;
    if (typeof url !== 'string' || !URL.canParse(url) || !mayLeadTo(url, insecure)) throw new Error(`the metadata have no usable ${name}`);
  }
}

function mayLeadTo(url: string, insecure: boolean): boolean {
  const { protocol } = new URL(url);
  return protocol === 'https:' || (insecure && protocol === 'http:');
}

function claimed(claims: Record<string, unknown>): Claimed {
  const text = (value: unknown): string | null => (typeof value === 'string' && value !== '' ? value : null);
  return {
    email: text(claims['email']),
    // OpenID Connect Core section 5.1: a JSON boolean; some providers write it as text. Absent is not verified.
    verified: claims['email_verified'] === true || claims['email_verified'] === 'true',
    name: text(claims['name']) ?? text(claims['preferred_username']),
    avatar_url: text(claims['picture']),
  };
}

/** Errors of openid-client by their codes. Only kinds are told on: a response may hold tokens. */
function translate(id: string, error: unknown): Error {
  const unreachable = causes(error).find((e) => e instanceof ProviderUnavailable);
  if (unreachable !== undefined) return unreachable;
  // RFC 6749 section 5.2
  if (error instanceof ResponseBodyError && error.error === 'invalid_grant') return new Refusal('code_refused', { cause: error });
  if (error instanceof ResponseBodyError && error.error === 'access_denied') return new Refusal('provider_denied', { cause: error });
  // RFC 6749 section 5.2; with 401 the token endpoint names the scheme that it wants. A bearer challenge comes from userinfo.
  if (error instanceof ResponseBodyError && (error.error === 'invalid_client' || error.error === 'unauthorized_client'))
    return new Refusal('client_refused', { detail: `${id}: ${reasonOf(error)}`, cause: error });
  if (error instanceof WWWAuthenticateChallengeError && !error.cause.some(({ scheme }) => scheme === 'bearer'))
    return new Refusal('client_refused', { detail: `${id}: HTTP ${error.status}`, cause: error });
  if (error instanceof ClientError && CLAIMS_WRONG.has(error.code ?? ''))
    return new Refusal('identity_refused', { detail: reasonOf(error), cause: error });
  return new ProviderUnavailable(`${id}: ${reasonOf(error)}`, { cause: error });
}

/** OpenID Connect Core section 3.1.3.7: what makes an ID token worth nothing. */
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
  if (error instanceof ResponseBodyError) return `${error.status} ${/^[\w.-]{1,60}$/.test(error.error) ? error.error : 'error'}`;
  if (error instanceof ClientError) return `${error.message}${error.code === undefined ? '' : ` (${error.code})`}`;
  return error instanceof Error ? error.message : String(error);
}

function causes(error: unknown): Error[] {
  const found: Error[] = [];
  for (let e = error; e instanceof Error && found.length < 5; e = e.cause) found.push(e);
  return found;
}
