/**
 * Reads, removes and creates the gateway's cookies in Cookie and Set-Cookie headers (RFC 6265bis).
 */
import { cookieName, cookiesNamed as allCookiesNamed } from '@berth/kit/cookie-header';
import { trimOws } from '@berth/kit/ows';

export const SESSION_COOKIE = 'svc_fwd_session';
/**
 * Identifies the browser at a project's host; one-time codes are bound to it. There is one cookie
 * per nonce, because tabs that open at the same moment get different nonces and must not overwrite
 * each other's cookie.
 */
const NONCE_COOKIE = 'berth_nonce';
/** Prefix of the attempt cookies. There is one per login in progress, only at the auth host. */
const ATTEMPT_COOKIE = 'berth_login_';
/**
 * RFC 6265bis section 4.1.3.2: browsers accept a cookie with this prefix only from the host itself,
 * over https. So an application under the same domain cannot plant a cookie for another host.
 */
const HOST_PREFIX = '__Host-';
/** Lifetime of a nonce cookie, equal to the time limit of a login (ATTEMPT_TTL_MS). */
export const NONCE_MAX_AGE_SECONDS = 900;

/**
 * Maximum number of cookies of one name that are checked, because each check verifies a signature.
 * Other applications under BASE_DOMAIN can plant session cookies, because the contract's name has
 * no `__Host-`. A browser with more session cookies gets an error page (`hasTooMany`).
 */
const MAX_CHECKED = 32;

/**
 * Over https the prefix prevents other hosts from planting attempt cookies; it requires `Path=/`.
 */
export const attemptCookiePrefix = (secure: boolean): string =>
  secure ? HOST_PREFIX + ATTEMPT_COOKIE : ATTEMPT_COOKIE;
/**
 * A sign-out sets this cookie. The next login then lets the person choose an account, because the
 * provider's own session continues.
 */
export const ASK_MAX_AGE_SECONDS = 30 * 86_400;
const ASK_COOKIE = 'berth_ask';
export const ASK_VALUE = 'ask-who-signs-in';
export const askCookieName = (secure: boolean): string =>
  secure ? HOST_PREFIX + ASK_COOKIE : ASK_COOKIE;
export const attemptCookiePath = (secure: boolean): string => (secure ? '/' : '/_oauth/');

const nonceCookieBase = (secure: boolean): string =>
  secure ? HOST_PREFIX + NONCE_COOKIE : NONCE_COOKIE;
/**
 * The name contains a part of `challenge`, the hash of the nonce. The hash is not secret: the
 * address bar shows it too.
 */
export const nonceCookieName = (secure: boolean, challenge: string): string =>
  `${nonceCookieBase(secure)}_${challenge.slice(0, 8)}`;

/**
 * Maximum number of nonces that are read. A browser that restores a window can open this many tabs
 * of one host at once.
 */
const MAX_NONCES = 32;
const NONCE = /^[A-Za-z0-9_-]{43}$/;

/** Returns the nonces of this host that the browser still has. */
export function noncesIn(header: string | undefined, secure: boolean): string[] {
  const base = nonceCookieBase(secure);
  if (header === undefined || !header.includes(base)) return [];
  const nonces: string[] = [];
  for (const pair of header.split(';')) {
    if (!cookieName(pair).startsWith(base)) continue;
    const value = trimOws(pair.slice(pair.indexOf('=') + 1));
    if (NONCE.test(value)) nonces.push(value);
    if (nonces.length === MAX_NONCES) break;
  }
  return nonces;
}

const isOurs = (name: string): boolean =>
  name === SESSION_COOKIE ||
  name.startsWith(NONCE_COOKIE) ||
  name.startsWith(HOST_PREFIX + NONCE_COOKIE) ||
  name === ASK_COOKIE ||
  name === HOST_PREFIX + ASK_COOKIE ||
  name.startsWith(ATTEMPT_COOKIE) ||
  name.startsWith(HOST_PREFIX + ATTEMPT_COOKIE);

/** Returns at most MAX_CHECKED values of `name`. */
export const cookiesNamed = (header: string | undefined, name: string): string[] =>
  allCookiesNamed(header, name, MAX_CHECKED);

/**
 * True if the header has more session cookies than are checked. Another sign-in would not help,
 * because its cookie might not be found.
 */
export function hasTooMany(header: string | undefined): boolean {
  if (header === undefined || !header.includes(SESSION_COOKIE)) return false;
  let count = 0;
  for (const pair of header.split(';'))
    if (cookieName(pair) === SESSION_COOKIE && ++count > MAX_CHECKED) return true;
  return false;
}

/**
 * Removes the gateway's cookies from the header and keeps every other byte. Returns undefined if
 * the result is empty.
 */
export function withoutOurCookies(header: string | undefined): string | undefined {
  if (header === undefined) return undefined;
  // Return the header unchanged if it has none of our cookies (fast path).
  if (!header.includes(SESSION_COOKIE) && !header.includes('berth_')) return header;
  const pairs = header.split(';');
  const kept = pairs.filter((pair) => !isOurs(cookieName(pair)));
  if (kept.length === pairs.length) return header;
  const remainingHeader = kept.join(';');
  if (trimOws(remainingHeader) === '') return undefined;
  // If the first pair was removed, also remove the space that followed it.
  return kept[0] === pairs[0] ? remainingHeader : remainingHeader.replace(/^[ \t]+/, '');
}

export type CookieOptions = { maxAgeSeconds: number; secure: boolean; path?: string };

/**
 * Creates a host-only cookie, without Domain (section 4.1.2.3). `maxAgeSeconds: 0` removes the
 * cookie.
 */
export function setCookie(
  name: string,
  value: string,
  { maxAgeSeconds, secure, path = '/' }: CookieOptions,
): string {
  return (
    `${name}=${value}; Path=${path}; Max-Age=${Math.max(0, Math.floor(maxAgeSeconds))}; ` +
    `HttpOnly; SameSite=Lax${secure ? '; Secure' : ''}`
  );
}
