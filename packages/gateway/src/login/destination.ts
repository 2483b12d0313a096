/**
 * The destination after a login: a checked redirect target, or one of the gateway's own pages
 * (docs/interfaces.md "Login").
 */
import type { OneTimeCodes, Redirects, Session } from '../deps.ts';
import { parameter } from './request.ts';

export type Destination =
  | { kind: 'target'; target: string; challenge: string | null }
  | { kind: 'activate'; code: string }
  | { kind: 'devices' };

/** base64url of a SHA-256. /verify computes it from the nonce in the browser's cookie. */
const CHALLENGE = /^[A-Za-z0-9_-]{43}$/;
/**
 * Returns the typed user code, or an empty text if it is too long. The control plane checks whether
 * the code exists.
 */
export const typedCode = (text: string | undefined): string =>
  text !== undefined && text.length <= 100 ? text : '';

export function destinationOf(query: unknown, redirects: Redirects): Destination {
  const page = parameter(query, 'page');
  if (page === 'activate') return { kind: 'activate', code: typedCode(parameter(query, 'code')) };
  if (page === 'devices') return { kind: 'devices' };
  const challenge = parameter(query, 'challenge');
  return {
    kind: 'target',
    target: redirects.target(parameter(query, 'redirect')),
    challenge: challenge !== undefined && CHALLENGE.test(challenge) ? challenge : null,
  };
}

/** Returns the address that starts a login for this destination. */
export function loginPath(destination: Destination, provider?: string): string {
  const query = new URLSearchParams(provider === undefined ? {} : { provider });
  if (destination.kind === 'target') {
    query.set('redirect', destination.target);
    if (destination.challenge !== null) query.set('challenge', destination.challenge);
  } else {
    query.set('page', destination.kind);
    if (destination.kind === 'activate' && destination.code !== '')
      query.set('code', destination.code);
  }
  return `/_oauth/login?${query.toString()}`;
}

/**
 * Returns the address for a retry. It leads to the target itself, because the nonce of a challenge
 * expires soon.
 */
export function retryPathOf(destination: Destination, redirects: Redirects): string {
  if (destination.kind !== 'target') return loginPath(destination);
  // Check the target again, because a custom domain might have been removed during the login.
  const target = redirects.target(destination.target);
  return target.startsWith('/') ? loginPath({ kind: 'target', target, challenge: null }) : target;
}

/**
 * Returns the address for a browser with this session. A project's host gets a one-time code
 * (docs/interfaces.md "Login").
 */
export function arrivalOf(
  destination: Destination,
  session: Session,
  redirects: Redirects,
  codes: OneTimeCodes,
): string {
  if (destination.kind === 'activate') {
    return destination.code === ''
      ? '/_oauth/device/activate'
      : `/_oauth/device/activate?${new URLSearchParams({ code: destination.code }).toString()}`;
  }
  if (destination.kind === 'devices') return '/_oauth/devices';
  // Check the target again, because a custom domain might have been removed during the login.
  const target = redirects.target(destination.target);
  const { challenge } = destination;
  const host = redirects.otherHost(target);
  // Without a challenge, a code could not be bound to the browser. /verify at that host creates a
  // nonce and redirects here again.
  if (host === null || challenge === null) return target;
  const url = new URL(target);
  const code = codes.mint(session, host, challenge, redirects.claimOf(host));
  const query = new URLSearchParams({ code, redirect: `${url.pathname}${url.search}${url.hash}` });
  return `${url.origin}/_oauth/session?${query.toString()}`;
}
