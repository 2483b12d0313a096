/**
 * Encrypts and authenticates small values that leave this process and come back (AES-256-GCM, one
 * key per purpose).
 */
import {
  createCipheriv,
  createDecipheriv,
  createSecretKey,
  type KeyObject,
  randomBytes,
} from 'node:crypto';
import { derived } from '@berth/kit/live';
import type { Keys, Sealer } from './deps.ts';
import { derive } from './keys.ts';

const IV_BYTES = 12;
const TAG_BYTES = 16;
/** Longer texts do not fit into a request, so `seal` cannot have made them. */
const MAX_TEXT = 16_384;

export function createSealer(keys: Keys, now: () => number): Sealer {
  /**
   * The code uses a small, fixed set of purposes, so this map is bounded. A reload replaces the
   * keys.
   */
  const byPurpose = derived(
    () => keys.sealing,
    () => new Map<string, readonly KeyObject[]>(),
  );
  const keysFor = (purpose: string): readonly KeyObject[] => {
    const known = byPurpose();
    let found = known.get(purpose);
    if (found === undefined) {
      found = keys.sealing.map((key) => createSecretKey(derive(key, purpose)));
      known.set(purpose, found);
    }
    return found;
  };

  return {
    seal(purpose, value, ttlMs) {
      const [key] = keysFor(purpose);
      if (key === undefined) throw new Error('no sealing key');
      const iv = randomBytes(IV_BYTES);
      const cipher = createCipheriv('aes-256-gcm', key, iv, { authTagLength: TAG_BYTES });
      const body = Buffer.concat([
        cipher.update(JSON.stringify([now() + ttlMs, value]), 'utf8'),
        cipher.final(),
      ]);
      return Buffer.concat([iv, cipher.getAuthTag(), body]).toString('base64url');
    },
    open(purpose, text) {
      if (text.length > MAX_TEXT || !/^[A-Za-z0-9_-]+$/.test(text)) return null;
      const bytes = Buffer.from(text, 'base64url');
      // Accept only the canonical encoding, because a lenient decoder would accept several texts
      // for the same bytes.
      if (bytes.length <= IV_BYTES + TAG_BYTES || bytes.toString('base64url') !== text) return null;
      for (const key of keysFor(purpose)) {
        const plain = decrypt(key, bytes);
        if (plain === null) continue;
        const [until, value] = JSON.parse(plain) as [number, never];
        return until > now() ? value : null;
      }
      return null;
    },
  };
}

function decrypt(key: KeyObject, bytes: Buffer): string | null {
  const decipher = createDecipheriv('aes-256-gcm', key, bytes.subarray(0, IV_BYTES), {
    authTagLength: TAG_BYTES,
  });
  decipher.setAuthTag(bytes.subarray(IV_BYTES, IV_BYTES + TAG_BYTES));
  try {
    return Buffer.concat([
      decipher.update(bytes.subarray(IV_BYTES + TAG_BYTES)),
      decipher.final(),
    ]).toString('utf8');
  } catch {
    // The authentication tag is wrong: another key or purpose, or a forged text.
    return null;
  }
}
