/**
 * The signature of an ID token. OpenID Connect Core section 3.1.3.7 (6) would let the TLS connection stand for it; with the signature
 * checked, an answer that was changed on the way past the provider is worth nothing either. Claims are openid-client's part.
 */
import { compactVerify, createRemoteJWKSet, customFetch, errors, type RemoteJWKSet } from 'jose';
import { Refusal } from '../login/refusal.ts';
import { type Fetch, ProviderUnavailable } from './fetch.ts';

/** RFC 8725 section 3.1: named one by one; `none` and what a shared secret could sign are not among them. */
const ALGORITHMS = ['RS256', 'RS384', 'RS512', 'PS256', 'PS384', 'PS512', 'ES256', 'ES384', 'ES512', 'EdDSA', 'Ed25519'];

export type Signatures = { verify(idToken: string): Promise<void> };

export function createSignatures(jwksUri: string, fetch: Fetch): Signatures {
  const keys: RemoteJWKSet = createRemoteJWKSet(new URL(jwksUri), {
    [customFetch]: (url: string, init: RequestInit) => fetch(url, init),
    // A provider that has just changed its keys is asked below, at once and once: whoever gets here had an answer from its token endpoint.
    cooldownDuration: Number.POSITIVE_INFINITY,
  });

  return {
    async verify(idToken) {
      try {
        await compactVerify(idToken, keys, { algorithms: ALGORITHMS });
      } catch (error) {
        if (!staleKeys(error)) throw translate(error);
        // OpenID Connect Core section 10.1.1: keys rotate; unknown or replaced ones are fetched anew, once.
        await keys.reload().catch((again: unknown) => {
          throw translate(again);
        });
        await compactVerify(idToken, keys, { algorithms: ALGORITHMS }).catch((again: unknown) => {
          throw translate(again);
        });
      }
    },
  };
}

const staleKeys = (error: unknown): boolean =>
  error instanceof errors.JWKSNoMatchingKey || error instanceof errors.JWSSignatureVerificationFailed;

function translate(error: unknown): Error {
  if (error instanceof ProviderUnavailable) return error;
  const what = error instanceof Error ? error.message : String(error);
  // About the keys' document: the provider's fault, and it may pass.
  if (error instanceof errors.JWKSInvalid || error instanceof errors.JWKSTimeout || !(error instanceof errors.JOSEError))
    return new ProviderUnavailable(`keys of the provider: ${what}`, { cause: error });
  if (error.code === 'ERR_JOSE_GENERIC') return new ProviderUnavailable(`keys of the provider: ${what}`, { cause: error });
  return new Refusal('identity_refused', { detail: `ID token: ${what}`, cause: error });
}
