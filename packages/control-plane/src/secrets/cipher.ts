/**
 * Encrypts with AES-256-GCM and associated data. The result is text: version, id of the key, then
 * nonce, ciphertext and tag in base64url.
 */
import { hkdfSync, randomBytes } from 'node:crypto';
import { seal, SEAL_BYTES, type SealFormat, unseal } from '@berth/kit/seal';
import { SEALED, sealedBy } from '../domain/secrets/sealed.ts';

const VERSION = 'v1';
const KEY_BYTES = 32;

export type Cipher = {
  seal(aad: readonly string[], value: Buffer): string;
  /** Throws if the text was changed, or if it was sealed with another key or another `aad`. */
  open(aad: readonly string[], sealed: string): Buffer;
};

export const newKey = (): Buffer => randomBytes(KEY_BYTES);

/** Derives a key for one purpose (RFC 5869), so that no key serves two purposes. */
export const derive = (key: Buffer, purpose: string): Buffer =>
  Buffer.from(hkdfSync('sha256', key, '', `berth ${purpose}`, KEY_BYTES));

/** Returns an id that reveals nothing about the key. */
export const keyIdOf = (key: Buffer): string => derive(key, 'key id').toString('hex').slice(0, 16);

export function createCipher(key: Buffer, purpose: string): Cipher {
  const id = keyIdOf(key);
  const derived = derive(key, purpose);
  // JSON keeps the parts distinct: ["a","bc"] and ["ab","c"] differ.
  const formatFor = (aad: readonly string[]): SealFormat => ({
    tag: 'last',
    about: Buffer.from(JSON.stringify([VERSION, purpose, ...aad])),
  });
  return {
    seal(aad, value) {
      const body = seal(derived, value, formatFor(aad));
      return `${VERSION}.${id}.${body.toString('base64url')}`;
    },
    open(aad, sealed) {
      const body = Buffer.from(SEALED.exec(sealed)?.groups?.['body'] ?? '', 'base64url');
      if (body.length < SEAL_BYTES || sealedBy(sealed) !== id)
        throw new Error('sealed with another key or format');
      return unseal(derived, body, formatFor(aad));
    },
  };
}
