/**
 * Verifies the signature of an ID token. OpenID Connect Core section 3.1.3.7 (6) allows TLS instead
 * of the signature; checking both also detects answers that were changed behind the TLS connection.
 * openid-client checks the claims.
 */
import { messageOf } from '@berth/kit/message-of';
import { compactVerify, createRemoteJWKSet, customFetch, errors, type RemoteJWKSet } from 'jose';
import { Refusal } from '../login/refusal.ts';
import { type Fetch, ProviderUnavailable } from './fetch.ts';

/**
 * RFC 8725 section 3.1: an explicit list, without `none` and without algorithms that use a shared
 * secret.
 */
const ALGORITHMS = [
  'RS256',
  'RS384',
  'RS512',
  'PS256',
  'PS384',
  'PS512',
  'ES256',
  'ES384',
  'ES512',
  'EdDSA',
  'Ed25519',
];

export type Signatures = { verify(idToken: string): Promise<void> };

export function createSignatures(jwksUri: string, fetch: Fetch): Signatures {
  const keys: RemoteJWKSet = createRemoteJWKSet(new URL(jwksUri), {
    [customFetch]: (url: string, init: RequestInit) => fetch(url, init),
    // `verify` reloads the keys itself, once per token: the token endpoint has just answered, so
    // the provider is reachable.
    cooldownDuration: Number.POSITIVE_INFINITY,
  });

  return {
    async verify(idToken) {
      try {
        await compactVerify(idToken, keys, { algorithms: ALGORITHMS });
      } catch (error) {
        if (!staleKeys(error)) throw translate(error);
        // OpenID Connect Core section 10.1.1: keys rotate, so reload them once if a key is unknown
        // or was replaced.
        await keys.reload().catch((reloadError: unknown) => {
          throw translate(reloadError);
        });
        await compactVerify(idToken, keys, { algorithms: ALGORITHMS }).catch(
          (verifyError: unknown) => {
            throw translate(verifyError);
          },
        );
      }
    },
  };
}

const staleKeys = (error: unknown): boolean =>
  error instanceof errors.JWKSNoMatchingKey ||
  error instanceof errors.JWSSignatureVerificationFailed;

function translate(error: unknown): Error {
  if (error instanceof ProviderUnavailable) return error;
  const what = messageOf(error);
  // These errors concern the key document: a temporary problem of the provider.
  if (
    error instanceof errors.JWKSInvalid ||
    error instanceof errors.JWKSTimeout ||
    !(error instanceof errors.JOSEError)
  )
    return new ProviderUnavailable(`keys of the provider: ${what}`, { cause: error });
  if (error.code === 'ERR_JOSE_GENERIC')
    return new ProviderUnavailable(`keys of the provider: ${what}`, { cause: error });
  return new Refusal('identity_refused', { detail: `ID token: ${what}`, cause: error });
}
