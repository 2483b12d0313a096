/**
 * One-time codes transfer a session from the auth host to another host. A code is encrypted, so
 * that the address bar does not show its content. It is bound to the host and the host's current
 * claim (the host can move to another project meanwhile). The hash of a nonce cookie binds it to
 * the browser. The control plane remembers used codes.
 */
import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import { defined } from '@berth/kit/defined';
import { ApiError, type Client } from '@berth/wire/client';
import type { OneTimeCodes, Sealer, Session } from './deps.ts';

/** RFC 6749 section 4.1.2 allows ten minutes at most; a redirect needs seconds. */
const CODE_TTL_MS = 60_000;
/**
 * Time for which a used code is remembered after its end, because the clocks of two machines can
 * differ.
 */
const REMEMBERED_MS = 60_000;
const REDEEM_TIMEOUT_MS = 4_000;
const PURPOSE = 'one-time code';

type Content = {
  id: string;
  session: Omit<Session, 'begun_at'> & { begun_at?: number };
  host: string;
  challenge: string;
  /**
   * Absent if the host belongs to no project, or if an older gateway beside this one made the code.
   */
  claim?: string;
  expires_at: number;
};

/**
 * Returns the challenge of a nonce (RFC 7636 section 4.2, method S256, the nonce as the verifier).
 */
export const challengeOf = (nonce: string): string =>
  createHash('sha256').update(nonce).digest('base64url');

export function createCodes(sealer: Sealer, controlPlane: Client, now: () => number): OneTimeCodes {
  return {
    mint(session, host, challenge, claim) {
      const id = randomBytes(18).toString('base64url');
      const content: Content = {
        id,
        session,
        host,
        challenge,
        ...defined({ claim }),
        expires_at: now() + CODE_TTL_MS,
      };
      return sealer.seal(PURPOSE, content, CODE_TTL_MS);
    },
    read(code, host, nonce, claim) {
      const content = sealer.open<Content>(PURPOSE, code);
      if (content === null || nonce === undefined || content.host !== host) return null;
      if (content.claim !== undefined && content.claim !== claim) return null;
      if (!sameText(challengeOf(nonce), content.challenge) || content.session.expires_at <= now())
        return null;
      // An older gateway that runs beside this one does not write `begun_at`.
      return {
        id: content.id,
        session: { ...content.session, begun_at: content.session.begun_at ?? 0 },
        expires_at: content.expires_at,
      };
    },
    async redeem({ id, expires_at }) {
      try {
        await controlPlane.call('redeemCode', {
          body: { id, expires_at: new Date(expires_at + REMEMBERED_MS).toISOString() },
          timeoutMs: REDEEM_TIMEOUT_MS,
        });
        return 'redeemed';
      } catch (error) {
        if (error instanceof ApiError && error.code === 'code_used') return 'used';
        throw error;
      }
    },
  };
}

function sameText(a: string, b: string): boolean {
  const [one, two] = [Buffer.from(a), Buffer.from(b)];
  return one.length === two.length && timingSafeEqual(one, two);
}
