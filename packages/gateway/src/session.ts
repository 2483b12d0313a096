/**
 * The session cookie: `<payload>.<HMAC-SHA-256>`, both base64url. The signature also covers the
 * audience (deps.ts), which is not part of the payload. A cookie for another audience has a wrong
 * signature, so no separate check of the audience is needed.
 */
import { createHmac, type KeyObject, timingSafeEqual } from 'node:crypto';
import type { Identity } from '@berth/wire/gateway';
import type { Audience, Keys, Session, Sessions } from './deps.ts';

/**
 * RFC 6265bis section 5.6: browsers keep no cookie whose name and value are longer than 4096 bytes
 * together.
 */
export const MAX_COOKIE_VALUE = 4000;
const MAC_LENGTH = 43;

type Payload = [
  id: string,
  email: string,
  name: string | null,
  avatarUrl: string | null,
  provider: string,
  expiresAtSeconds: number,
  /** Absent in cookies of older versions. */
  begunAtSeconds?: number,
];

export function createSessions(keys: Keys, now: () => number): Sessions {
  return {
    seal(session, audience) {
      const [key] = keys.session;
      if (key === undefined) throw new Error('no session key');
      const payload = payloadOf(session);
      return `${payload}.${macOf(key, payload, audience)}`;
    },
    open(value, audience) {
      if (value.length > MAX_COOKIE_VALUE || !/^[A-Za-z0-9_-]+\.[A-Za-z0-9_-]{43}$/.test(value))
        return null;
      const payload = value.slice(0, -MAC_LENGTH - 1);
      const mac = Buffer.from(value.slice(-MAC_LENGTH));
      if (
        !keys.session.some((key) =>
          timingSafeEqual(mac, Buffer.from(macOf(key, payload, audience))),
        )
      )
        return null;
      const session = sessionOf(payload);
      return session.expires_at > now() ? session : null;
    },
  };
}

/**
 * The audience cannot contain a line feed, so different pairs of audience and payload give
 * different bytes.
 */
const macOf = (key: KeyObject, payload: string, audience: Audience): string =>
  createHmac('sha256', key).update(`${audience}\n${payload}`).digest('base64url');

/**
 * Leaves out the avatar, then the name, if the payload does not fit into a cookie. The contract
 * makes both optional.
 */
function payloadOf(session: Session): string {
  for (const identity of [
    session.identity,
    { ...session.identity, avatar_url: null },
    { ...session.identity, avatar_url: null, name: null },
  ]) {
    const payload = encode(session, identity);
    if (payload.length + MAC_LENGTH + 1 <= MAX_COOKIE_VALUE) return payload;
  }
  throw new Error('the session does not fit into a cookie');
}

function encode(session: Session, { email, name, avatar_url, provider }: Identity): string {
  const payload: Payload = [
    session.id,
    email,
    name,
    avatar_url,
    provider,
    Math.floor(session.expires_at / 1000),
    Math.floor(session.begun_at / 1000),
  ];
  return Buffer.from(JSON.stringify(payload)).toString('base64url');
}

/** Parses a payload. Callers check the signature first. */
function sessionOf(payload: string): Session {
  const [id, email, name, avatar_url, provider, seconds, begun = 0] = JSON.parse(
    Buffer.from(payload, 'base64url').toString('utf8'),
  ) as Payload;
  return {
    id,
    identity: { email, name, avatar_url, provider },
    begun_at: begun * 1000,
    expires_at: seconds * 1000,
  };
}
