/**
 * The signed assertion beside the plain identity headers (JWT, RFC 7519; EdDSA, RFC 8037): an application that can be reached
 * past the proxy can refuse what did not come through it. Made once for a session and host while it is young, so the hot path
 * signs nothing.
 */
import { type KeyObject, sign } from 'node:crypto';
import type { DeviceScope, Identity } from '@berth/wire/gateway';
import { LRUCache } from 'lru-cache';
import type { Keys } from './deps.ts';

const LIFETIME_SECONDS = 300;
/** Whoever gets one can use it for at least a minute. */
const REUSED_SECONDS = 240;
const MAX_KEPT = 20_000;

export type Assertion = { token: string /** Milliseconds: make a new one from then on. */; renewAt: number };
type Whence = {
  host: string;
  /** Milliseconds. */
  endsAt: number;
  /** Of the device token that opened; null: a session did. */
  scope: DeviceScope | null;
  /** Id of that device token or session, where the API must be able to tell whether it was revoked. */
  origin: string | null;
};
export type Assertions = { for(identity: Identity, whence: Whence): Assertion };

export function createAssertions(keys: Keys, issuer: string, now: () => number): Assertions {
  const kept = new LRUCache<string, Assertion>({ max: MAX_KEPT });
  return {
    for(identity, whence) {
      const { host, endsAt, scope, origin } = whence;
      const { email, name, avatar_url, provider } = identity;
      // For one session: the API refuses an assertion from before its person was deleted, and a new session must not be given that one.
      const key = JSON.stringify([host, email, name, avatar_url, provider, endsAt, scope, origin]);
      const found = kept.get(key);
      if (found !== undefined && found.renewAt > now()) return found;
      const made = make(keys, issuer, { identity, ...whence, endsAt: Math.min(endsAt, now() + LIFETIME_SECONDS * 1000) }, now());
      kept.set(key, made);
      return made;
    },
  };
}

type About = Whence & { identity: Identity };

function make(keys: Keys, issuer: string, { identity, host, endsAt, scope, origin }: About, now: number): Assertion {
  const [current] = keys.assertion;
  if (current === undefined) throw new Error('no assertion key');
  const seconds = Math.floor(now / 1000);
  const claims = {
    iss: issuer,
    aud: host,
    sub: identity.email,
    email: identity.email,
    ...(identity.name === null ? {} : { name: identity.name }),
    ...(identity.avatar_url === null ? {} : { avatar_url: identity.avatar_url }),
    provider: identity.provider,
    // Where a device token opened: the API takes the assertion of one only with the scope `api`, as the token itself.
    ...(scope === null ? {} : { scope }),
    ...(origin === null ? {} : scope === null ? { sid: origin } : { device_token: origin }),
    iat: seconds,
    exp: Math.floor(endsAt / 1000),
  };
  return {
    token: signed(current.kid, current.privateKey, claims),
    renewAt: Math.min(endsAt, now + REUSED_SECONDS * 1000),
  };
}

/** RFC 7515 section 7.1. */
function signed(kid: string, key: KeyObject, claims: object): string {
  const part = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64url');
  const input = `${part({ alg: 'EdDSA', typ: 'JWT', kid })}.${part(claims)}`;
  return `${input}.${sign(null, Buffer.from(input), key).toString('base64url')}`;
}
