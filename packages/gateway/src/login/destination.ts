/** Where a login leads when it is done: a redirect target that was checked, or one of the gateway's own pages (no redirect targets, INTERFACES). */
import type { OneTimeCodes, Redirects, Session } from '../deps.ts';
import { parameter } from './request.ts';

export type Destination =
  | { kind: 'target'; target: string; challenge: string | null }
  | { kind: 'activate'; code: string }
  | { kind: 'devices' };

/** base64url of a SHA-256, as /verify made it of the nonce it left in the browser. */
const CHALLENGE = /^[A-Za-z0-9_-]{43}$/;
/** Anything a person might type for a user code; the control plane knows which are codes. */
export const typedCode = (text: string | undefined): string => (text !== undefined && text.length <= 100 ? text : '');

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

/** The address that begins a login which leads there. */
export function loginPath(destination: Destination, provider?: string): string {
  const query = new URLSearchParams(provider === undefined ? {} : { provider });
  if (destination.kind === 'target') {
    query.set('redirect', destination.target);
    if (destination.challenge !== null) query.set('challenge', destination.challenge);
  } else {
    query.set('page', destination.kind);
    if (destination.kind === 'activate' && destination.code !== '') query.set('code', destination.code);
  }
  return `/_oauth/login?${query.toString()}`;
}

/** For starting over later: the page itself, since the nonce behind a challenge does not live long. */
export function againPath(destination: Destination): string {
  if (destination.kind !== 'target') return loginPath(destination);
  return destination.target.startsWith('/') ? loginPath({ ...destination, challenge: null }) : destination.target;
}

/** Where a browser with this session goes. A host of its own gets a one-time code (INTERFACES "Gateway beyond the contract"). */
export function arrivalOf(destination: Destination, session: Session, redirects: Redirects, codes: OneTimeCodes): string {
  if (destination.kind === 'activate') {
    return destination.code === ''
      ? '/_oauth/device/activate'
      : `/_oauth/device/activate?${new URLSearchParams({ code: destination.code }).toString()}`;
  }
  if (destination.kind === 'devices') return '/_oauth/devices';
  const { target, challenge } = destination;
  const host = redirects.otherHost(target);
  // Without a challenge the code would be bound to no browser: /verify at that host makes one and sends the browser here again.
  if (host === null || challenge === null) return target;
  const url = new URL(target);
  const query = new URLSearchParams({ code: codes.mint(session, host, challenge), redirect: `${url.pathname}${url.search}${url.hash}` });
  return `${url.origin}/_oauth/session?${query.toString()}`;
}
