/**
 * Decides which servers git can contact: a redirect must stay on its host, and a submodule must be
 * on an allowed host. No I/O.
 */
import { TaskFailure } from '../failures.ts';

/**
 * Returns the host of a git address in lower case; null if the address is not https, http or ssh.
 */
export function gitHost(url: string): string | null {
  if (url.startsWith('-') || /[\s\p{Cc}\\]/u.test(url)) return null;
  if (url.includes('://')) {
    const parsed = URL.canParse(url) ? new URL(url) : null;
    return parsed !== null && /^(https?|ssh):$/.test(parsed.protocol) && parsed.hostname !== ''
      ? plain(parsed.hostname)
      : null;
  }
  // Match user@host:path. An address such as `ext::…` has no user, so it does not match.
  const [, host = ''] = /^[\w.~+-]+@([\w.-]+|\[[0-9a-fA-F:.]+\]):(?![:/]?-)/.exec(url) ?? [];
  return host === '' ? null : plain(host);
}
const plain = (host: string): string => host.toLowerCase().replace(/\.$/, '');

/**
 * Tells whether the host is listed. `list` contains host names, and `*.name` for all subdomains.
 */
export const isListed = (host: string, list: readonly string[]): boolean =>
  list.some((entry) => {
    const name = plain(entry);
    return name.startsWith('*.') ? host.endsWith(name.slice(1)) : host === name;
  });

/**
 * Resolves a submodule address from `.gitmodules` as git does: `./` and `../` are relative to the
 * parent's address, and each `../` removes one part of the path.
 */
export function submoduleUrl(parent: string, url: string): string {
  if (!/^\.\.?(\/|$)/.test(url)) return url;
  let base = parent.replace(/\/+$/, '');
  let rest = url;
  for (;;) {
    if (rest.startsWith('./')) rest = rest.slice(2);
    else if (rest === '..' || rest.startsWith('../')) {
      rest = rest.slice(3);
      const cut = Math.max(base.lastIndexOf('/'), base.lastIndexOf(':'));
      base = base.slice(0, cut);
    } else break;
  }
  // In `user@host:path`, a colon precedes the last part.
  return !base.includes('://') && !base.includes(':') ? `${base}:${rest}` : `${base}/${rest}`;
}

const ASKED = '/info/refs';
const QUERY = '?service=git-upload-pack';

/**
 * Returns the repository’s address after a redirect of the first request. Throws TaskFailure
 * git_redirect_refused.
 */
export function redirectTarget(from: string, location: string): string {
  const asked = new URL(`${from.replace(/\/+$/, '')}${ASKED}${QUERY}`);
  const next = URL.canParse(location, asked.href) ? new URL(location, asked) : null;
  if (next === null) throw refusal(`${asked.host} redirects to an invalid address`);
  if (!staysOn(asked, next))
    throw refusal(
      `${originOf(asked)} redirects to ${originOf(next)}. Berth follows a redirect only to the ` +
        'same host and port. ' +
        'To use that address, set it as the git_url of the project',
    );
  if (!next.pathname.endsWith(ASKED) || next.search !== QUERY)
    throw refusal(
      `${asked.host} redirects to ${short(`${originOf(next)}${next.pathname}`)}, which is not a ` +
        'git repository',
    );
  next.pathname = next.pathname.slice(0, -ASKED.length);
  next.search = '';
  next.username = asked.username;
  next.password = '';
  return next.href;
}

/** Returns the failure for a redirect after the first request: git must stay on one server. */
export const lateRedirectFailure = (from: string, location: string): TaskFailure => {
  const base = new URL(from);
  const to = URL.canParse(location, base.href)
    ? originOf(new URL(location, base))
    : 'an invalid address';
  return refusal(`${originOf(base)} redirects to ${to} during the transfer`);
};

export const tooManyRedirects = (url: string): TaskFailure =>
  refusal(`${short(url)} redirects more often than allowed`);

/** Tells whether a redirect keeps host and port. From http to https, port 443 is allowed too. */
function staysOn(asked: URL, next: URL): boolean {
  if (next.hostname !== asked.hostname) return false;
  if (next.protocol === asked.protocol) return next.port === asked.port;
  return (
    asked.protocol === 'http:' &&
    next.protocol === 'https:' &&
    (next.port === asked.port || next.port === '')
  );
}
const originOf = (url: URL): string => short(`${url.protocol}//${url.host}`);
const short = (text: string): string => text.slice(0, 300);
const refusal = (seen: string): TaskFailure => new TaskFailure('git_redirect_refused', seen);
