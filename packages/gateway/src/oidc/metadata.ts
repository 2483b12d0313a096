/**
 * The metadata of one OpenID provider (OpenID Connect Discovery). One request loads them for all
 * waiting logins. If a reload fails, the old metadata stay in use.
 */
import {
  allowInsecureRequests,
  type ClientAuth,
  ClientSecretBasic,
  ClientSecretPost,
  type Configuration,
  customFetch,
  discovery,
  None,
} from 'openid-client';
import type { Live } from '@berth/kit/live';
import { type Fetch, ProviderUnavailable, PROVIDER_TIMEOUT_MS } from './fetch.ts';
import { createSignatures, type Signatures } from './id-token.ts';
import { reasonOf } from './openid-errors.ts';

export type MetadataOptions = {
  id: string;
  issuer: string;
  clientId: string;
  /** The client secret, which a reload can replace. */
  clientSecret: Live<string | undefined>;
  fetch: Fetch;
  /** Monotonic clock in ms. */
  monotonic: () => number;
};
type Discovered = { config: Configuration; signatures: Signatures; at: number };
export type Metadata = {
  readonly options: MetadataOptions;
  readonly issuer: URL;
  /**
   * True if plain http is allowed. config.ts allows it only for an issuer at loopback, and the
   * endpoints in the metadata must not be weaker than the issuer.
   */
  readonly insecure: boolean;
  cached: Discovered | null;
  loading: Promise<Discovered> | null;
};

/** Endpoints change rarely. A failed request also reloads the metadata. */
const METADATA_TTL_MS = 600_000;

export function newMetadata(options: MetadataOptions): Metadata {
  const issuer = new URL(options.issuer);
  return { options, issuer, insecure: issuer.protocol === 'http:', cached: null, loading: null };
}

export async function discovered(metadata: Metadata): Promise<Discovered> {
  const { cached, options } = metadata;
  if (cached !== null && options.monotonic() - cached.at < METADATA_TTL_MS) return cached;
  metadata.loading ??= load(metadata).finally(() => {
    metadata.loading = null;
  });
  return cached === null ? metadata.loading : metadata.loading.catch(() => cached);
}

async function load(metadata: Metadata): Promise<Discovered> {
  const { options, issuer, insecure } = metadata;
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
    const signatures = createSignatures(String(config.serverMetadata().jwks_uri), options.fetch);
    return (metadata.cached = { config, signatures, at: options.monotonic() });
  } catch (error) {
    throw new ProviderUnavailable(`${options.id}: metadata: ${reasonOf(error)}`, { cause: error });
  }
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
    if (typeof url !== 'string' || !URL.canParse(url) || !isAllowedUrl(url, insecure))
      throw new Error(`the metadata contain no usable ${name}`);
  }
}

export function isAllowedUrl(url: string, insecure: boolean): boolean {
  const { protocol } = new URL(url);
  return protocol === 'https:' || (insecure && protocol === 'http:');
}
