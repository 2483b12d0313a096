/** The Cookie and Set-Cookie headers (RFC 6265bis): finding our cookies, taking exactly them out, making ours. */
import { trimOws } from '@berth/kit/ows';

export const SESSION_COOKIE = 'svc_fwd_session';
/**
 * What a browser that asks at a project's host is known by again; codes are bound to it. One cookie for each nonce: tabs that
 * are opened at the same moment are each told another, and none may overwrite the other's.
 */
const NONCE_COOKIE = 'berth_nonce';
/** Logins under way, one each; at the auth host alone. */
const ATTEMPT_COOKIE = 'berth_login_';
/**
 * RFC 6265bis section 4.1.3.2: browsers take it from a host itself only, over https, so that no application under the same
 * domain can plant one of its own for another.
 */
const HOST_PREFIX = '__Host-';
/** As long as a login may take (ATTEMPT_TTL_MS). */
export const NONCE_MAX_AGE_SECONDS = 900;

/**
 * Checks at most this many cookies of one name; each costs a signature check. Other applications under BASE_DOMAIN can plant session
 * cookies, because the contract's name has no `__Host-`. A browser with more than this gets a page (`hasTooMany`).
 */
const MOST_TRIED = 32;

/** Over https the prefix keeps other hosts from planting attempt cookies; it requires `Path=/`. */
export const attemptCookiePrefix = (secure: boolean): string => (secure ? HOST_PREFIX + ATTEMPT_COOKIE : ATTEMPT_COOKIE);
/** Left by a sign-out: the next login asks the provider for a fresh choice, since its own session goes on. */
export const ASK_MAX_AGE_SECONDS = 30 * 86_400;
const ASK_COOKIE = 'berth_ask';
export const ASK_VALUE = 'ask-who-signs-in';
export const askCookieName = (secure: boolean): string => (secure ? HOST_PREFIX + ASK_COOKIE : ASK_COOKIE);
export const attemptCookiePath = (secure: boolean): string => (secure ? '/' : '/_oauth/');

const nonceCookieBase = (secure: boolean): string => (secure ? HOST_PREFIX + NONCE_COOKIE : NONCE_COOKIE);
/** `challenge`: the hash of the nonce; a name may tell it, the address bar does too. */
export const nonceCookieName = (secure: boolean, challenge: string): string => `${nonceCookieBase(secure)}_${challenge.slice(0, 8)}`;

/** A browser that restores a window opens that many tabs of one host at once, and hardly more. */
const MOST_NONCES = 32;
const NONCE = /^[A-Za-z0-9_-]{43}$/;

/** Those of this host that are still in the browser. */
export function noncesIn(header: string | undefined, secure: boolean): string[] {
  const base = nonceCookieBase(secure);
  if (header === undefined || !header.includes(base)) return [];
  const found: string[] = [];
  for (const pair of header.split(';')) {
    if (!nameOf(pair).startsWith(base)) continue;
    const value = trimOws(pair.slice(pair.indexOf('=') + 1));
    if (NONCE.test(value)) found.push(value);
    if (found.length === MOST_NONCES) break;
  }
  return found;
}

const isOurs = (name: string): boolean =>
  name === SESSION_COOKIE ||
  name.startsWith(NONCE_COOKIE) ||
  name.startsWith(HOST_PREFIX + NONCE_COOKIE) ||
  name === ASK_COOKIE ||
  name === HOST_PREFIX + ASK_COOKIE ||
  name.startsWith(ATTEMPT_COOKIE) ||
  name.startsWith(HOST_PREFIX + ATTEMPT_COOKIE);

/** Section 5.6: spaces and tabs around the name are no part of it. A pair without `=` has a value and no name. */
function nameOf(pair: string): string {
  const equals = pair.indexOf('=');
  return equals === -1 ? '' : trimOws(pair.slice(0, equals));
}

/** Values under `name`, in the order sent, MOST_TRIED at most. The same name may come more than once (section 4.2.2). */
export function cookiesNamed(header: string | undefined, name: string): string[] {
  if (header === undefined || !header.includes(name)) return [];
  const found: string[] = [];
  for (const pair of header.split(';')) {
    if (nameOf(pair) !== name) continue;
    found.push(trimOws(pair.slice(pair.indexOf('=') + 1)));
    if (found.length === MOST_TRIED) break;
  }
  return found;
}

/** Whether the header has more session cookies than are checked: another sign-in would not help, since its cookie would not be found. */
export function hasTooMany(header: string | undefined): boolean {
  if (header === undefined || !header.includes(SESSION_COOKIE)) return false;
  let count = 0;
  for (const pair of header.split(';')) if (nameOf(pair) === SESSION_COOKIE && ++count > MOST_TRIED) return true;
  return false;
}

/** The header without our cookies, every other byte as it was; undefined when nothing is left. */
export function withoutOurCookies(header: string | undefined): string | undefined {
  if (header === undefined) return undefined;
  // Most requests carry the session and perhaps a few of the application's own.
  if (!header.includes(SESSION_COOKIE) && !header.includes('berth_')) return header;
  const pairs = header.split(';');
  const kept = pairs.filter((pair) => !isOurs(nameOf(pair)));
  if (kept.length === pairs.length) return header;
  const left = kept.join(';');
  if (trimOws(left) === '') return undefined;
  // What stood before the first one that is kept is gone: so is the space that followed it.
  return kept[0] === pairs[0] ? left : left.replace(/^[ \t]+/, '');
}

export type CookieOptions = { maxAgeSeconds: number; secure: boolean; path?: string };

/** Host-only: no Domain (section 4.1.2.3). `maxAgeSeconds` 0 removes it. */
export function setCookie(name: string, value: string, { maxAgeSeconds, secure, path = '/' }: CookieOptions): string {
  return `${name}=${value}; Path=${path}; Max-Age=${Math.max(0, Math.floor(maxAgeSeconds))}; HttpOnly; SameSite=Lax${secure ? '; Secure' : ''}`;
}
