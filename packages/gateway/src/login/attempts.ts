/**
 * Logins under way: one sealed cookie each, found again by the state that comes back. So parallel tabs do not disturb each other,
 * any worker can finish what another began, and nothing has to be remembered here.
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
/** INTERFACES: at most 5 attempt cookies at a time. */
const MOST = 5;
const PURPOSE = 'login attempt';
const HINT_PURPOSE = 'login destination';
const HINT_TTL_MS = 86_400_000;
/** Providers bound what they carry; a longer one is done without. */
const LONGEST_HINT = 600;

export type Attempts = {
  /** The new attempt, and the Set-Cookie lines that keep it and drop the oldest ones. */
  begin(cookieHeader: string | undefined, provider: string, destination: Destination): { attempt: Attempt; setCookies: string[] };
  /** The attempt that this state belongs to; null: none of this browser's. */
  find(cookieHeader: string | undefined, state: string): Attempt | null;
  /** Of a state whose attempt is gone: where its login was to lead, so that starting again leads there too; null: not known. */
  hint(state: string): Destination | null;
  /** Ends one (it is worth something once), or all. */
  drop(state: string): string;
  dropAll(cookieHeader: string | undefined): string[];
};

export function createAttempts(sealer: Sealer, secure: boolean, now: () => number): Attempts {
  const hintFor = (destination: Destination): string => {
    const hint = `.${sealer.seal(HINT_PURPOSE, destination, HINT_TTL_MS)}`;
    return hint.length > LONGEST_HINT ? '' : hint;
  };
  const prefix = attemptCookiePrefix(secure);
  const path = attemptCookiePath(secure);
  const remove = (name: string): string => setCookie(name, '', { maxAgeSeconds: 0, secure, path });
  /** A state that anybody may have sent: its hash is a cookie's name whatever it holds. */
  const nameOf = (state: string): string => prefix + createHash('sha256').update(state).digest('base64url').slice(0, 16);

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
      const dropped = [...new Set(older.slice(MOST - 1).map((cookie) => cookie.name))].filter((name) => name !== nameOf(attempt.state));
      const sealed = sealer.seal(PURPOSE, attempt, ATTEMPT_TTL_MS);
      const kept = setCookie(nameOf(attempt.state), sealed, { maxAgeSeconds: ATTEMPT_TTL_MS / 1000, secure, path });
      return { attempt, setCookies: [...dropped.map(remove), kept] };
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
    dropAll: (cookieHeader) => [...new Set(cookiesOf(cookieHeader, prefix).map((cookie) => cookie.name))].map(remove),
  };
}

/** A browser keeps 5; more come from somebody who plays. */
const MOST_READ = 40;
function cookiesOf(header: string | undefined, prefix: string): { name: string; value: string }[] {
  if (header === undefined || !header.includes(prefix)) return [];
  const found: { name: string; value: string }[] = [];
  for (const pair of header.split(';')) {
    const equals = pair.indexOf('=');
    const name = trimOws(pair.slice(0, Math.max(equals, 0)));
    const value = trimOws(pair.slice(equals + 1));
    if (name.startsWith(prefix) && /^[\w-]+$/.test(name) && found.length < MOST_READ) found.push({ name, value });
  }
  return found;
}

function sameText(a: string, b: string): boolean {
  const [one, two] = [Buffer.from(a), Buffer.from(b)];
  return one.length === two.length && timingSafeEqual(one, two);
}
