/**
 * The gateway's word on who somebody is: a JWT that it signs (EdDSA) for one host, here for the host of PUBLIC_URL. Its keys
 * are read from its JWKS and kept, so that an exchange goes on while the gateway is away for a while.
 */
import { createRemoteJWKSet, customFetch, errors, type JWTPayload, type JWTVerifyGetKey, jwtVerify } from 'jose';
import { DomainError } from '../../domain/errors.ts';
import type { Origin } from './origins.ts';

/** An unknown `kid` makes the keys be read again, but not more often than this. */
const COOLDOWN_MS = 10_000;
const KEPT_MS = 10 * 60_000;
const TIMEOUT_MS = 3_000;
/** The gateway's assertions live for 5 minutes; an older one is none of its. */
const MAX_AGE = '6m';
const SKEW = '30s';

export const SCOPE_NEEDED = 'ask for a device token with scope=projects api at /_oauth/device/code';

export type Assertions = {
  /**
   * The e-mail it speaks for, when it was made (milliseconds), and what opened (null: an earlier gateway does not say). Throws unauthenticated;
   * gateway_unreachable while the keys cannot be read.
   */
  read(assertion: string): Promise<{ email: string; madeAt: number; origin: Origin | null }>;
};

export function createAssertions(deps: {
  authServiceUrl: string | null;
  publicUrl: string;
  now: () => number;
  fetch?: typeof fetch;
}): Assertions {
  const { authServiceUrl, publicUrl, now } = deps;
  const keys =
    authServiceUrl === null
      ? null
      : createRemoteJWKSet(new URL('/_oauth/jwks.json', authServiceUrl), {
          cooldownDuration: COOLDOWN_MS,
          cacheMaxAge: KEPT_MS,
          timeoutDuration: TIMEOUT_MS,
          ...(deps.fetch === undefined ? {} : { [customFetch]: deps.fetch }),
        });
  /** What fails in reading the keys is the gateway's trouble; what fails in choosing one is the assertion's. */
  const keyOf: JWTVerifyGetKey = async (header, token) => {
    if (keys === null) throw new DomainError('unauthenticated', 'AUTH_SERVICE_URL is not set: there is no gateway whose word would count');
    try {
      return await keys(header, token);
    } catch (error) {
      if (CHOOSING.some((kind) => error instanceof kind)) throw error;
      throw new DomainError('gateway_unreachable');
    }
  };
  return {
    async read(assertion) {
      try {
        const { payload } = await jwtVerify(assertion, keyOf, {
          // RFC 8725 section 3.1: what it says of its own algorithm counts for nothing.
          algorithms: ['EdDSA'],
          // As OpenID Connect Core section 3.1.3.7 has it for ID tokens: issuer, audience, end.
          issuer: new URL(publicUrl).origin,
          audience: new URL(publicUrl).hostname,
          requiredClaims: ['email', 'iat', 'exp'],
          maxTokenAge: MAX_AGE,
          clockTolerance: SKEW,
          currentDate: new Date(now()),
        });
        // RFC 6750 section 3.1. Absent: a person's own session.
        const scope = payload['scope'];
        if (scope !== undefined && scope !== 'projects api') throw new DomainError('insufficient_scope', SCOPE_NEEDED);
        const email = payload['email'];
        if (typeof email === 'string' && /^[^@\s]+@[^@\s]+$/.test(email))
          return { email: email.toLowerCase(), madeAt: (payload.iat ?? 0) * 1000, origin: originIn(payload) };
      } catch (error) {
        if (!(error instanceof errors.JOSEError)) throw error;
      }
      throw new DomainError('unauthenticated', 'the gateway’s assertion is not valid, not for here, or has expired');
    },
  };
}

function originIn({ scope, device_token, sid }: JWTPayload): Origin | null {
  const id = scope === undefined ? sid : device_token;
  return typeof id === 'string' ? { kind: scope === undefined ? 'gateway_session' : 'device_token', id } : null;
}

const CHOOSING = [errors.JWKSNoMatchingKey, errors.JWKSMultipleMatchingKeys, errors.JOSENotSupported];
