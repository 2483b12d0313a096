/**
 * Encrypts values with AES-256-GCM; no other code does. A sealed value begins with its random
 * nonce. It opens only with the same key and the same additional data, and only if no byte changed.
 */
import { createCipheriv, createDecipheriv, type KeyObject, randomBytes } from 'node:crypto';

const ALGORITHM = 'aes-256-gcm';
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
/** Bytes by which a sealed value is longer than its content. */
export const SEAL_BYTES = NONCE_BYTES + TAG_BYTES;

export type SealKey = Buffer | KeyObject;
export type SealFormat = {
  /** Place of the authentication tag: between the nonce and the ciphertext, or at the end. */
  tag: 'first' | 'last';
  /** Additional data, which is authenticated but not stored. */
  about?: Buffer;
};

export function seal(key: SealKey, content: Buffer, { tag, about }: SealFormat): Buffer {
  const nonce = randomBytes(NONCE_BYTES);
  const cipher = createCipheriv(ALGORITHM, key, nonce, { authTagLength: TAG_BYTES });
  if (about !== undefined) cipher.setAAD(about);
  const text = Buffer.concat([cipher.update(content), cipher.final()]);
  return Buffer.concat(
    tag === 'first' ? [nonce, cipher.getAuthTag(), text] : [nonce, text, cipher.getAuthTag()],
  );
}

/** @throws if the value was sealed with another key or other additional data, or was changed */
export function unseal(key: SealKey, sealed: Buffer, { tag, about }: SealFormat): Buffer {
  if (sealed.length < SEAL_BYTES) throw new Error('too short for a sealed value');
  const nonce = sealed.subarray(0, NONCE_BYTES);
  const rest = sealed.subarray(NONCE_BYTES);
  const decipher = createDecipheriv(ALGORITHM, key, nonce, { authTagLength: TAG_BYTES });
  if (about !== undefined) decipher.setAAD(about);
  decipher.setAuthTag(tag === 'first' ? rest.subarray(0, TAG_BYTES) : rest.subarray(-TAG_BYTES));
  const text = tag === 'first' ? rest.subarray(TAG_BYTES) : rest.subarray(0, -TAG_BYTES);
  return Buffer.concat([decipher.update(text), decipher.final()]);
}

/** Returns the content, or null if none of the keys opens the value. */
export function unsealWithAny(
  keys: Iterable<SealKey>,
  sealed: Buffer,
  format: SealFormat,
): Buffer | null {
  for (const key of keys) {
    try {
      return unseal(key, sealed, format);
    } catch {
      // The authentication tag does not fit this key.
    }
  }
  return null;
}
