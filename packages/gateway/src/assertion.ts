/**
 * The signed assertion beside the plain identity headers (JWT, RFC 7519; EdDSA, RFC 8037). With it,
 * an application that is reachable without the proxy can refuse requests that bypass the proxy. An
 * assertion is cached per session and host, so that the hot path does not sign.
 */
import { type KeyObject, sign } from 'node:crypto';
import { defined } from '@berth/kit/defined';
import type { DeviceScope, Identity } from '@berth/wire/gateway';
import { LRUCache } from 'lru-cache';
import type { Keys } from './deps.ts';

const LIFETIME_SECONDS = 300;
/**
 * Time for which an assertion is reused. It then stays valid for at least one more minute, unless
 * the session ends earlier.
 */
const REUSED_SECONDS = 240;
const MAX_CACHED = 20_000;

export type Assertion = {
  token: string;
  /** Time in ms from which a new assertion is made. */
  renewAt: number;
};
type Grant = {
  host: string;
  /** End of the session or device token, in ms. */
  endsAt: number;
  /** Scope of the device token; null for a session. */
  scope: DeviceScope | null;
  /**
   * Id of the device token or session, with which the API checks for revocation; null if the API
   * does not need it.
   */
  origin: string | null;
};
export type Assertions = { for(identity: Identity, grant: Grant): Assertion };

export function createAssertions(keys: Keys, issuer: string, now: () => number): Assertions {
  const cache = new LRUCache<string, Assertion>({ max: MAX_CACHED });
  return {
    for(identity, grant) {
      const { host, endsAt, scope, origin } = grant;
      const { email, name, avatar_url, provider } = identity;
      // The key includes the session's end: after a deletion of the person, a new session must not
      // get the assertion of an old one.
      const [signer] = keys.assertion;
      // The key includes the signer: after a rotation, applications get assertions of the new key
      // at once.
      const key = JSON.stringify([
        signer?.kid,
        host,
        email,
        name,
        avatar_url,
        provider,
        endsAt,
        scope,
        origin,
      ]);
      const cached = cache.get(key);
      if (cached !== undefined && cached.renewAt > now()) return cached;
      const made = make(
        keys,
        issuer,
        { identity, ...grant, endsAt: Math.min(endsAt, now() + LIFETIME_SECONDS * 1000) },
        now(),
      );
      cache.set(key, made);
      return made;
    },
  };
}

type Content = Grant & { identity: Identity };

function make(
  keys: Keys,
  issuer: string,
  { identity, host, endsAt, scope, origin }: Content,
  now: number,
): Assertion {
  const [current] = keys.assertion;
  if (current === undefined) throw new Error('no assertion key');
  const seconds = Math.floor(now / 1000);
  const claims = {
    iss: issuer,
    aud: host,
    sub: identity.email,
    email: identity.email,
    ...defined({ name: identity.name ?? undefined, avatar_url: identity.avatar_url ?? undefined }),
    provider: identity.provider,
    // `scope` is set for a device token. The API accepts an assertion with a scope only if the
    // scope includes `api`; the same rule applies to the token itself.
    ...defined({ scope: scope ?? undefined }),
    ...originOf(scope, origin),
    iat: seconds,
    exp: Math.floor(endsAt / 1000),
  };
  return {
    token: signed(current.kid, current.privateKey, claims),
    renewAt: Math.min(endsAt, now + REUSED_SECONDS * 1000),
  };
}

/** Returns the claim that names the session or the device token of the request. */
function originOf(scope: string | null, origin: string | null): object {
  if (origin === null) return {};
  return scope === null ? { sid: origin } : { device_token: origin };
}

/** Returns the signed assertion in compact form (RFC 7515 section 7.1). */
function signed(kid: string, key: KeyObject, claims: object): string {
  const part = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64url');
  const input = `${part({ alg: 'EdDSA', typ: 'JWT', kid })}.${part(claims)}`;
  return `${input}.${sign(null, Buffer.from(input), key).toString('base64url')}`;
}
