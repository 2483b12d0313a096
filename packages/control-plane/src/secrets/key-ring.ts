/** The keys of SECRETS_KEY. The first one wraps the keys of projects; all of them unwrap. */
import { sealedBy } from '../domain/secrets/sealed.ts';
import { type Cipher, createCipher, keyIdOf } from './cipher.ts';

export type KeyRing = {
  /** Id of the current wrapping key. */
  currentId: string;
  has(keyId: string): boolean;
  seal(aad: readonly string[], value: Buffer): string;
  /** Returns null if no key of the ring can decrypt the text. */
  open(aad: readonly string[], sealed: string): Buffer | null;
};

/** `keys`: at least one key; the first one wraps. */
export function createKeyRing(keys: readonly Buffer[]): KeyRing {
  const ciphers = new Map<string, Cipher>(
    keys.map((key) => [keyIdOf(key), createCipher(key, 'wrap')]),
  );
  const [[currentId, current] = []] = ciphers;
  if (currentId === undefined || current === undefined) throw new Error('a key ring needs a key');
  return {
    currentId,
    has: (keyId) => ciphers.has(keyId),
    seal: (aad, value) => current.seal(aad, value),
    open(aad, sealed) {
      try {
        return ciphers.get(sealedBy(sealed) ?? '')?.open(aad, sealed) ?? null;
      } catch {
        // The key id matches but the text does not decrypt: somebody changed the column by hand.
        return null;
      }
    },
  };
}
