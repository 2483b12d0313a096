/**
 * Encrypts and authenticates small values that leave this process and come back (AES-256-GCM, one
 * key per purpose).
 */
import { createSecretKey, type KeyObject } from 'node:crypto';
import { derived } from '@berth/kit/live';
import { seal, SEAL_BYTES, type SealFormat, unsealWithAny } from '@berth/kit/seal';
import type { Keys, Sealer } from './deps.ts';
import { derive } from './keys.ts';

const FORMAT: SealFormat = { tag: 'first' };
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
    const keysByPurpose = byPurpose();
    let sealingKeys = keysByPurpose.get(purpose);
    if (sealingKeys === undefined) {
      sealingKeys = keys.sealing.map((key) => createSecretKey(derive(key, purpose)));
      keysByPurpose.set(purpose, sealingKeys);
    }
    return sealingKeys;
  };

  return {
    seal(purpose, value, ttlMs) {
      const [key] = keysFor(purpose);
      if (key === undefined) throw new Error('no sealing key');
      const content = Buffer.from(JSON.stringify([now() + ttlMs, value]));
      return seal(key, content, FORMAT).toString('base64url');
    },
    open(purpose, text) {
      if (text.length > MAX_TEXT || !/^[A-Za-z0-9_-]+$/.test(text)) return null;
      const bytes = Buffer.from(text, 'base64url');
      // Accept only the canonical encoding, because a lenient decoder would accept several texts
      // for the same bytes.
      if (bytes.length <= SEAL_BYTES || bytes.toString('base64url') !== text) return null;
      const content = unsealWithAny(keysFor(purpose), bytes, FORMAT);
      if (content === null) return null;
      const [until, value] = JSON.parse(content.toString()) as [number, never];
      return until > now() ? value : null;
    },
  };
}
