/**
 * Reads the gateway's assertion: a JWT that the gateway signs (EdDSA) for one host, here the host
 * of PUBLIC_URL. The keys come from the gateway's JWKS and are cached, so that an exchange works
 * during a gateway outage of some minutes.
 */
import { defined } from '@berth/kit/defined';
import {
  createRemoteJWKSet,
  customFetch,
  errors,
  type JWTPayload,
  type JWTVerifyGetKey,
  jwtVerify,
} from 'jose';
import { DomainError } from '../../domain/platform/errors.ts';
import type { Origin } from './origins.ts';

/** Minimum time between two reads of the keys for an unknown `kid`. */
const COOLDOWN_MS = 10_000;
const KEPT_MS = 10 * 60_000;
const TIMEOUT_MS = 3_000;
/** Maximum age: the gateway's assertions live for 5 minutes, and 1 minute allows for clock skew. */
const MAX_AGE = '6m';
const SKEW = '30s';

export const SCOPE_NEEDED =
  'request a device token with the scope "projects api" at /_oauth/device/code';

export type Assertions = {
  /**
   * Returns the e-mail address, the time of the assertion in ms, and the origin (null if an older
   * gateway does not send it). Throws unauthenticated, insufficient_scope, and gateway_unreachable
   * if the keys cannot be read.
   */
  read(assertion: string): Promise<{ email: string; madeAt: number; origin: Origin | null }>;
};

export type AssertionDeps = {
  /** Address of the gateway, which serves its public keys; null without a gateway. */
  authServiceUrl: string | null;
  publicUrl: string;
  now: () => number;
};

export function createAssertions(deps: AssertionDeps & { fetch?: typeof fetch }): Assertions {
  const { authServiceUrl, publicUrl, now } = deps;
  const keys =
    authServiceUrl === null
      ? null
      : createRemoteJWKSet(new URL('/_oauth/jwks.json', authServiceUrl), {
          cooldownDuration: COOLDOWN_MS,
          cacheMaxAge: KEPT_MS,
          timeoutDuration: TIMEOUT_MS,
          ...defined({ [customFetch]: deps.fetch }),
        });
  /**
   * An unreadable key set is the gateway's fault. A key set without a usable key means that the
   * assertion is invalid.
   */
  const keyOf: JWTVerifyGetKey = async (header, token) => {
    if (keys === null)
      throw new DomainError(
        'unauthenticated',
        'AUTH_SERVICE_URL is not set, so assertions cannot be checked; set it on the control plane',
      );
    try {
      return await keys(header, token);
    } catch (error) {
      if (NO_USABLE_KEY.some((kind) => error instanceof kind)) throw error;
      throw new DomainError('gateway_unreachable');
    }
  };
  return {
    async read(assertion) {
      try {
        const { payload } = await jwtVerify(assertion, keyOf, {
          // Fix the algorithm here: the token must not choose it (RFC 8725 section 3.1).
          algorithms: ['EdDSA'],
          // Check issuer, audience and expiry as in OpenID Connect Core section 3.1.3.7 for ID
          // tokens.
          issuer: new URL(publicUrl).origin,
          audience: new URL(publicUrl).hostname,
          requiredClaims: ['email', 'iat', 'exp'],
          maxTokenAge: MAX_AGE,
          clockTolerance: SKEW,
          currentDate: new Date(now()),
        });
        // Check the scope (RFC 6750 section 3.1). An assertion from a session has no scope.
        const scope = payload['scope'];
        if (scope !== undefined && scope !== 'projects api')
          throw new DomainError('insufficient_scope', SCOPE_NEEDED);
        const email = payload['email'];
        if (typeof email === 'string' && /^[^@\s]+@[^@\s]+$/.test(email))
          return {
            email: email.toLowerCase(),
            madeAt: (payload.iat ?? 0) * 1000,
            origin: originIn(payload),
          };
      } catch (error) {
        if (!(error instanceof errors.JOSEError)) throw error;
      }
      throw new DomainError(
        'unauthenticated',
        'the assertion is invalid, is for another host, or has expired; sign in again',
      );
    },
  };
}

function originIn({ scope, device_token, sid }: JWTPayload): Origin | null {
  const id = scope === undefined ? sid : device_token;
  return typeof id === 'string'
    ? { kind: scope === undefined ? 'gateway_session' : 'device_token', id }
    : null;
}

const NO_USABLE_KEY = [
  errors.JWKSNoMatchingKey,
  errors.JWKSMultipleMatchingKeys,
  errors.JOSENotSupported,
];
