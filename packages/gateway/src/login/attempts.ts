/**
 * Logins in progress (attempts). The browser stores each attempt in a sealed cookie, which the
 * gateway finds by the `state` in the provider's answer. So parallel tabs do not interfere, any
 * worker can finish a login, and the gateway stores nothing.
 */
import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import { trimOws } from '@berth/kit/ows';
import { attemptCookiePath, attemptCookiePrefix, setCookie } from '../cookies.ts';
import type { Sealer } from '../deps.ts';
import type { Secrets } from '../oidc/provider.ts';
import type { Destination } from './destination.ts';

export type Attempt = Secrets & {
  /** RFC 9700 section 4.4.2: the answer must come from this provider. */
  provider: string;
  destination: Destination;
  begun_at: number;
};

export const ATTEMPT_TTL_MS = 900_000;
/** Maximum number of attempt cookies in one browser (docs/interfaces.md "Login"). */
const MAX_ATTEMPTS = 5;
const PURPOSE = 'login attempt';
const HINT_PURPOSE = 'login destination';
const HINT_TTL_MS = 86_400_000;
/** Providers limit the length of `state`, so a longer hint is left out. */
const MAX_HINT = 600;

export type Attempts = {
  /**
   * Creates an attempt, and the Set-Cookie headers that store it and remove the oldest attempts.
   */
  begin(
    cookieHeader: string | undefined,
    provider: string,
    destination: Destination,
  ): { attempt: Attempt; setCookies: string[] };
  /** Returns the attempt of this browser with this state, or null. */
  find(cookieHeader: string | undefined, state: string): Attempt | null;
  /**
   * Returns the destination from a state whose attempt has expired, so that a new login leads there
   * too, or null if it is unknown.
   */
  hint(state: string): Destination | null;
  /** Returns the Set-Cookie header that ends this attempt. An attempt can be used once. */
  drop(state: string): string;
  /** Returns the Set-Cookie headers that end all attempts of the browser. */
  dropAll(cookieHeader: string | undefined): string[];
};

export function createAttempts(sealer: Sealer, secure: boolean, now: () => number): Attempts {
  const hintFor = (destination: Destination): string => {
    const hint = `.${sealer.seal(HINT_PURPOSE, destination, HINT_TTL_MS)}`;
    return hint.length > MAX_HINT ? '' : hint;
  };
  const prefix = attemptCookiePrefix(secure);
  const path = attemptCookiePath(secure);
  const remove = (name: string): string => setCookie(name, '', { maxAgeSeconds: 0, secure, path });
  /**
   * The name contains a hash, because the state comes from the request and can contain any
   * characters.
   */
  const nameOf = (state: string): string =>
    prefix + createHash('sha256').update(state).digest('base64url').slice(0, 16);

  return {
    begin(cookieHeader, provider, destination) {
      const attempt: Attempt = {
        state: randomBytes(32).toString('base64url') + hintFor(destination),
        nonce: randomBytes(32).toString('base64url'),
        verifier: randomBytes(32).toString('base64url'),
        provider,
        destination,
        begun_at: now(),
      };
      const older = cookiesOf(cookieHeader, prefix).map((cookie) => ({
        ...cookie,
        at: sealer.open<Attempt>(PURPOSE, cookie.value)?.begun_at ?? 0,
      }));
      older.sort((a, b) => b.at - a.at);
      const dropped = [
        ...new Set(older.slice(MAX_ATTEMPTS - 1).map((cookie) => cookie.name)),
      ].filter((name) => name !== nameOf(attempt.state));
      const sealed = sealer.seal(PURPOSE, attempt, ATTEMPT_TTL_MS);
      const added = setCookie(nameOf(attempt.state), sealed, {
        maxAgeSeconds: ATTEMPT_TTL_MS / 1000,
        secure,
        path,
      });
      return { attempt, setCookies: [...dropped.map(remove), added] };
    },
    find(cookieHeader, state) {
      const name = nameOf(state);
      for (const cookie of cookiesOf(cookieHeader, prefix)) {
        if (cookie.name !== name) continue;
        const attempt = sealer.open<Attempt>(PURPOSE, cookie.value);
        if (attempt !== null && sameText(attempt.state, state)) return attempt;
      }
      return null;
    },
    hint: (state) => sealer.open<Destination>(HINT_PURPOSE, state.slice(state.indexOf('.') + 1)),
    drop: (state) => remove(nameOf(state)),
    dropAll: (cookieHeader) =>
      [...new Set(cookiesOf(cookieHeader, prefix).map((cookie) => cookie.name))].map(remove),
  };
}

/** Maximum number of attempt cookies that are read. A normal browser has at most 5. */
const MAX_READ = 40;
function cookiesOf(header: string | undefined, prefix: string): { name: string; value: string }[] {
  if (header === undefined || !header.includes(prefix)) return [];
  const cookies: { name: string; value: string }[] = [];
  for (const pair of header.split(';')) {
    const equals = pair.indexOf('=');
    const name = trimOws(pair.slice(0, Math.max(equals, 0)));
    const value = trimOws(pair.slice(equals + 1));
    if (name.startsWith(prefix) && /^[\w-]+$/.test(name) && cookies.length < MAX_READ)
      cookies.push({ name, value });
  }
  return cookies;
}

function sameText(a: string, b: string): boolean {
  const [one, two] = [Buffer.from(a), Buffer.from(b)];
  return one.length === two.length && timingSafeEqual(one, two);
}
