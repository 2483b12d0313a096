/**
 * Checks redirect targets (RFC 9700 section 4.11: no open redirectors). A target is a path on
 * this host, or BASE_DOMAIN, a host under it or a custom domain of a project, with the scheme and
 * port of PUBLIC_URL. Texts that a browser might parse differently are refused before parsing.
 */
import type { Redirects } from './deps.ts';

/** A target must fit into an attempt cookie. */
const MAX_TARGET = 2048;
/** A URL without user info, IPv6 address, escapes or trailing dot in the host. */
const ABSOLUTE = /^https?:\/\/[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:\d{1,5})?([/?#]|$)/i;
/** Browsers drop tabs and line ends and read a backslash as a slash (WHATWG URL, section 4.4). */
// oxlint-disable-next-line no-control-regex
const SUSPECT = /[\u0000-\u0020\u007f-\u00a0\\\u2028\u2029\ufeff]/;

export function createRedirects(
  publicUrl: string,
  baseDomain: string,
  claimOf: Redirects['claimOf'],
): Redirects {
  const base = new URL(publicUrl);
  const isOurs = (url: URL): boolean =>
    url.protocol === base.protocol &&
    url.port === base.port &&
    (url.hostname === base.hostname ||
      url.hostname === baseDomain ||
      url.hostname.endsWith(`.${baseDomain}`) ||
      claimOf(url.hostname) !== undefined);

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
      return hostname === base.hostname ? null : hostname;
    },
    claimOf,
  };
}

/**
 * Returns the normalised path on the same host, or `/` if `raw` is not a path or could be parsed as
 * a host.
 */
export function localPath(raw: string): string {
  if (!raw.startsWith('/') || raw.length > MAX_TARGET || SUSPECT.test(raw)) return '/';
  const base = 'http://path.invalid';
  const url = URL.parse(raw, base);
  if (url === null || url.origin !== base || url.username !== '' || url.password !== '') return '/';
  // `/.//host` and `/%2e%2e//host` become `//host`, which browsers treat as another host.
  if (url.pathname.startsWith('//') || isReservedPath(url.pathname)) return '/';
  return url.pathname + url.search + url.hash;
}

/**
 * True if the path belongs to the gateway at every host, in any spelling that routers or
 * applications might accept.
 */
export function isReservedPath(path: string): boolean {
  if (isOauth(path)) return true;
  // Resolve escapes, dot segments and repeated slashes, as routers and applications might do.
  if (!/[%\\]|\/[./]/.test(path)) return false;
  const plain = decoded(path)
    .replaceAll('\\', '/')
    .replace(/\/{2,}/g, '/');
  const url = URL.parse(plain, 'http://path.invalid');
  return url === null || isOauth(plain) || isOauth(url.pathname.replace(/\/{2,}/g, '/'));
}

const isOauth = (path: string): boolean =>
  path.startsWith('/_oauth') && (path.length === 7 || path[7] === '/' || path[7] === ';');

/** Decodes every valid escape once. */
const decoded = (path: string): string =>
  path.replace(/%([0-9a-f]{2})/gi, (_, hex: string) =>
    String.fromCharCode(Number.parseInt(hex, 16)),
  );
