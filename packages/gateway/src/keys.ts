/**
 * Derives all keys from SESSION_SECRET with HKDF (RFC 5869), one key per use. Workers and restarts
 * get the same keys without stored state, and a leaked key is useless for the other uses. The
 * current secret signs and encrypts; earlier secrets only verify and decrypt. A reload replaces all
 * keys at once.
 */
import {
  createPrivateKey,
  createPublicKey,
  createSecretKey,
  createHash,
  hkdfSync,
  type KeyObject,
} from 'node:crypto';
import { derived, type Live } from '@berth/kit/live';
import type { Keys } from './deps.ts';

/**
 * PKCS #8 prefix of an Ed25519 private key (RFC 8410 section 7). The 32 bytes of the key follow.
 */
const PKCS8_ED25519 = Buffer.from('302e020100300506032b657004220420', 'hex');

/** Returns the keys of the current secrets at each access, so that a reload applies at once. */
export function keysOf(secrets: Live<readonly string[]>): Keys {
  const keys = derived(secrets, deriveKeys);
  return {
    get session() {
      return keys().session;
    },
    get sealing() {
      return keys().sealing;
    },
    get assertion() {
      return keys().assertion;
    },
  };
}

export function deriveKeys(secrets: readonly string[]): Keys {
  return {
    session: secrets.map((secret) => createSecretKey(derive(secret, 'berth session v1'))),
    sealing: secrets.map((secret) => createSecretKey(derive(secret, 'berth sealing v1'))),
    assertion: secrets.map((secret) => assertionKey(derive(secret, 'berth assertion v1'))),
  };
}

export function derive(secret: string | KeyObject, info: string): Buffer {
  return Buffer.from(hkdfSync('sha256', secret, Buffer.alloc(0), info, 32));
}

function assertionKey(seed: Buffer): Keys['assertion'][number] {
  const privateKey = createPrivateKey({
    key: Buffer.concat([PKCS8_ED25519, seed]),
    format: 'der',
    type: 'pkcs8',
  });
  const publicKey = createPublicKey(privateKey);
  const { crv, kty, x } = publicKey.export({ format: 'jwk' });
  // RFC 7638 section 3: the required members in lexicographic order.
  const kid = createHash('sha256').update(JSON.stringify({ crv, kty, x })).digest('base64url');
  return { kid, privateKey, publicKey };
}

/** Returns the public keys as a JWK set (RFC 7517; RFC 8037 section 2). */
export function jwks(keys: Keys): { keys: Record<string, string>[] } {
  return {
    keys: keys.assertion.map(({ kid, publicKey }) => {
      const { kty, crv, x } = publicKey.export({ format: 'jwk' }) as {
        kty: string;
        crv: string;
        x: string;
      };
      return { kty, crv, x, kid, alg: 'EdDSA', use: 'sig' };
    }),
  };
}
