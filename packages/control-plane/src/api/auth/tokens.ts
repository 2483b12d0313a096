/**
 * API tokens are JWTs (RFC 7519), signed with HS256 and the first secret. Every secret verifies
 * them, so that secrets can rotate.
 */
import { createSecretKey } from 'node:crypto';
import { defined } from '@berth/kit/defined';
import { derived, type Live } from '@berth/kit/live';
import { errors, jwtVerify, SignJWT } from 'jose';
import { LRUCache } from 'lru-cache';
import type { UserRecord } from '../../domain/platform/records.ts';
import { type Origin, originOf, originText } from './origins.ts';
import { sha256Of } from './secrets.ts';

export const TOKEN_SECONDS = 3600;
const ISSUER = 'berth';
const MAX_CACHED_TOKENS = 2_000;

/**
 * Content of a verified token, which becomes invalid early if its session or origin ends.
 * `expiresAt` is in ms.
 */
export type ReadToken = {
  userId: string;
  sessionId: string;
  origin: Origin | null;
  expiresAt: number;
};
export type Tokens = {
  /** Signs a token. `seconds`: its lifetime; default TOKEN_SECONDS. */
  mint(
    user: Pick<UserRecord, 'id' | 'email' | 'role'>,
    sessionId: string,
    origin: Origin | null,
    seconds?: number,
  ): Promise<string>;
  /** Verifies a token. Returns null unless Berth signed it and it is still valid. */
  read(token: string): Promise<ReadToken | null>;
};

export function createTokens(secrets: Live<readonly string[]>, now: () => number): Tokens {
  const inUse = derived(secrets, (values) => {
    const keys = values.map((s) => createSecretKey(Buffer.from(s, 'utf8')));
    const [current] = keys;
    if (current === undefined) throw new Error('a JWT secret is needed');
    /**
     * Caches verified tokens by their digest, because each verification has to wait for a worker
     * thread.
     */
    return { keys, current, verified: new LRUCache<string, ReadToken>({ max: MAX_CACHED_TOKENS }) };
  });
  return {
    mint: (user, sessionId, origin, seconds = TOKEN_SECONDS) =>
      new SignJWT({
        email: user.email,
        role: user.role,
        sid: sessionId,
        ...defined({ origin: origin === null ? undefined : originText(origin) }),
      })
        .setProtectedHeader({ alg: 'HS256', typ: 'JWT' })
        .setIssuer(ISSUER)
        .setSubject(user.id)
        .setIssuedAt(Math.floor(now() / 1000))
        .setExpirationTime(Math.floor(now() / 1000) + seconds)
        .sign(inUse().current),
    async read(token) {
      const { keys, verified } = inUse();
      const digest = sha256Of(token);
      const cached = verified.get(digest);
      if (cached !== undefined) return cached.expiresAt > now() ? cached : null;
      for (const key of keys) {
        try {
          // Fix the algorithm here: the token must not choose it (RFC 8725 section 3.1).
          const { payload } = await jwtVerify(token, key, {
            algorithms: ['HS256'],
            issuer: ISSUER,
            requiredClaims: ['sub', 'sid', 'iat', 'exp'],
            currentDate: new Date(now()),
          });
          const sessionId = payload['sid'];
          if (typeof sessionId !== 'string') return null;
          const text = payload['origin'];
          const origin = typeof text === 'string' ? originOf(text) : null;
          if (text !== undefined && origin === null) return null;
          const read: ReadToken = {
            userId: payload.sub ?? '',
            sessionId,
            origin,
            expiresAt: (payload.exp ?? 0) * 1000,
          };
          verified.set(digest, read);
          return read;
        } catch (error) {
          if (error instanceof errors.JWSSignatureVerificationFailed) continue;
          if (error instanceof errors.JOSEError) return null;
          throw error;
        }
      }
      return null;
    },
  };
}
