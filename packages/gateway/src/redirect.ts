/**
 * Where a redirect may lead (RFC 9700 section 4.11: no open redirectors): a path here, or BASE_DOMAIN and the hosts under it with
 * PUBLIC_URL's scheme and port. Whatever a browser could read otherwise than we do is refused before it is parsed.
 */
import type { Redirects } from './deps.ts';

/** It has to fit into an attempt cookie. */
const MAX_TARGET = 2048;
/** No user info, no IPv6, no escapes, no trailing dot of a host. */
const ABSOLUTE = /^https?:\/\/[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:\d{1,5})?([/?#]|$)/i;
/** Browsers drop tabs and line ends and read a backslash as a slash (WHATWG URL, section 4.4). */
// oxlint-disable-next-line no-control-regex
const SUSPECT = /[\u0000-\u0020\u007f-\u00a0\\\u2028\u2029\ufeff]/;

export function createRedirects(publicUrl: string, baseDomain: string): Redirects {
  const own = new URL(publicUrl);
  const isOurs = (url: URL): boolean =>
    url.protocol === own.protocol &&
    url.port === own.port &&
    (url.hostname === own.hostname || url.hostname === baseDomain || url.hostname.endsWith(`.${baseDomain}`));

  return {
    target(raw) {
      if (raw === undefined || raw.length > MAX_TARGET || SUSPECT.test(raw)) return '/';
      if (raw.startsWith('/')) return localPath(raw);
      if (!ABSOLUTE.test(raw) || !URL.canParse(raw)) return '/';
      const url = new URL(raw);
      return isOurs(url) && !isReservedPath(url.pathname) ? url.href : '/';
    },
    otherHost(target) {
      if (target.startsWith('/')) return null;
      const { hostname } = new URL(target);
      return hostname === own.hostname ? null : hostname;
    },
  };
}

/** A path of the same host, normalised; `/` for everything that is none, or could be read as a host. */
export function localPath(raw: string): string {
  if (!raw.startsWith('/') || raw.length > MAX_TARGET || SUSPECT.test(raw)) return '/';
  const base = 'http://path.invalid';
  const url = URL.parse(raw, base);
  if (url === null || url.origin !== base || url.username !== '' || url.password !== '') return '/';
  // `/.//host` and `/%2e%2e//host` become `//host`, which is an address of its own.
  if (url.pathname.startsWith('//') || isReservedPath(url.pathname)) return '/';
  return url.pathname + url.search + url.hash;
}

/** Whether this path is the gateway's own at every host, however it is spelled. */
export function isReservedPath(path: string): boolean {
  if (isOauth(path)) return true;
  // What routers and applications may make of it: escapes, dot segments, doubled slashes.
  if (!/[%\\]|\/[./]/.test(path)) return false;
  const plain = decoded(path)
    .replaceAll('\\', '/')
    .replace(/\/{2,}/g, '/');
  const url = URL.parse(plain, 'http://path.invalid');
  return url === null || isOauth(plain) || isOauth(url.pathname.replace(/\/{2,}/g, '/'));
}

const isOauth = (path: string): boolean => path.startsWith('/_oauth') && (path.length === 7 || path[7] === '/' || path[7] === ';');

/** Every escape once; one that is none stays as it is. */
const decoded = (path: string): string =>
  path.replace(/%([0-9a-f]{2})/gi, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
