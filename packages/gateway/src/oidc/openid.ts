/** OpenID Connect: authorization code flow with PKCE, state, nonce and issuer check, by openid-client. */
import {
  allowInsecureRequests,
  authorizationCodeGrant,
  buildAuthorizationUrl,
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
  fetch: Fetch;
  now: () => number;
};
type Discovered = { config: Configuration; signatures: Signatures; at: number };

/** Endpoints move seldom; an answer that fails makes them be asked for anew whatever their age. */
const METADATA_TTL_MS = 600_000;

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

  return {
    id: options.id,
    label: options.label,
    async authorizationUrl(secrets, redirectUri) {
      const { config } = await discovered();
      return buildAuthorizationUrl(config, {
        redirect_uri: redirectUri,
        scope: 'openid email profile',
        state: secrets.state,
        nonce: secrets.nonce,
        // RFC 9700 section 2.1.1: PKCE always, and S256 only.
        code_challenge: await calculatePKCECodeChallenge(secrets.verifier),
        code_challenge_method: 'S256',
      });
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
    const protocol = typeof url === 'string' && URL.canParse(url) ? new URL(url).protocol : null;
    if (protocol !== 'https:' && !(insecure && protocol === 'http:')) throw new Error(`the metadata have no usable ${name}`);
  }
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
