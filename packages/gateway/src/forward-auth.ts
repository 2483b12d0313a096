/**
 * The decision of /verify: what is asked and what is known come in as data, what to answer goes out as data. No I/O; the one
 * step that needs some (taking a one-time code) is named in the answer. Guards first; only the last lines let anybody in.
 *
 *   policy unknown                               doubt        503
 *   not our host, unknown project, host of another  forbidden 403
 *   /_oauth/session at a project's host          redeem       the code is read, then taken
 *   any other reserved path                      not_found    404
 *   the control plane's check, good | bad        reach: its id is taken, then it passes without a name | 401
 *   a device token, good | bad                   pass | refused token 401
 *   a session of this audience                   pass (or forbidden: no admin)
 *   none                                         login 302 for navigations, 401 for the rest
 *   none, and more cookies than are checked      too_many_cookies, a page
 */
import { trimOws } from '@berth/kit/ows';
import { readReach } from '@berth/kit/reach-token';
import { DEVICE_TOKEN_PATTERN, DEVICE_TOKEN_PREFIX, type DeviceScope, type Identity } from '@berth/wire/gateway';
import { cookiesNamed, hasTooMany, noncesIn, SESSION_COOKIE, withoutOurCookies } from './cookies.ts';
import { type Audience, audienceOfProject, type OneTimeCodes, type PolicyView, type Session, type Sessions } from './deps.ts';
import { isGood } from './policy-view.ts';
import { isReservedPath } from './redirect.ts';

/** Which of the three middlewares asks (INTERFACES.md). */
export type Door = { kind: 'project'; id: string } | { kind: 'any' } | { kind: 'admin' };

/** The request that the proxy holds, as its headers tell it. The identity headers it carries are never read. */
export type Ask = {
  door: Door;
  method: string;
  /** X-Forwarded-Host: perhaps with a port. */
  host: string;
  /** Path and query. */
  uri: string;
  accept: string | undefined;
  fetchMode: string | undefined;
  requestedWith: string | undefined;
  /** Upgrade, or what a WebSocket handshake is known by: proxies drop hop-by-hop headers when they ask here. */
  upgrade: string | undefined;
  cookie: string | undefined;
  authorization: string | undefined;
};

export type Knowledge = {
  view: PolicyView;
  sessions: Pick<Sessions, 'open'>;
  codes: Pick<OneTimeCodes, 'read'>;
  baseDomain: string;
  /** Host of PUBLIC_URL. */
  authHost: string;
  /** PUBLIC_URL is https. */
  secure: boolean;
  adminEmails: readonly string[];
  /** GATEWAY_SECRET: the control plane signs its checks with it. */
  gatewaySecrets: readonly string[];
  now: number;
};

/** `host` is without port, lower case. */
export type Decision =
  | {
      kind: 'pass';
      host: string;
      identity: Identity;
      /** Milliseconds: holds no longer, whatever the policy says. */
      until: number;
      /** Set where a device token opened. */
      tokenId: string | null;
      /** Set where a session opened. */
      sessionId: string | null;
      /** Of that token; null: a session opened. */
      scope: DeviceScope | null;
      /** What of these goes on to the project. */
      cookie: string | undefined;
      authorization: string | undefined;
    }
  | { kind: 'login'; host: string; uri: string }
  | { kind: 'too_many_cookies'; host: string; uri: string }
  | { kind: 'unauthenticated'; host: string; uri: string }
  | { kind: 'bad_token' }
  | { kind: 'forbidden'; why: 'incomplete' | 'unknown_project' | 'unknown_host' | 'wrong_host' | 'not_admin'; email?: string }
  | { kind: 'not_found' }
  | {
      kind: 'redeem';
      host: string;
      audience: Audience;
      code: { id: string; session: Session; expires_at: number };
      redirect: string;
    }
  /** A code that opens nothing; `signed_in`: the browser has its session already, from another tab or a second click. */
  | { kind: 'no_code'; why: 'signed_in' | 'no_nonce' | 'bad_code' | 'ended'; host: string; redirect: string }
  /** The control plane looks whether the proxy reaches the project: nobody's request, good once. */
  | { kind: 'reach'; host: string; code: { id: string; expires_at: number }; cookie: string | undefined }
  | { kind: 'doubt' };

const SESSION_PATH = '/_oauth/session';

export function decide(ask: Ask, known: Knowledge): Decision {
  const { view } = known;
  if (!view.known) return { kind: 'doubt' };

  // A reserved path that is not told could not be held back.
  if (ask.uri === '') return { kind: 'forbidden', why: 'incomplete' };
  const host = hostOf(ask.host);
  if (host === null || !isUnder(host, known)) return { kind: 'forbidden', why: 'unknown_host' };
  // The single sign-on cookie lives at the auth host and nowhere else; a project's cookie at that project's hosts.
  let audience: Audience = host === known.authHost ? 'sso' : `host:${host}`;
  if (ask.door.kind === 'project') {
    const project = view.projectById(ask.door.id);
    if (project === undefined) return { kind: 'forbidden', why: 'unknown_project' };
    if (view.projectByHost(host)?.id !== project.id) return { kind: 'forbidden', why: 'wrong_host' };
    audience = audienceOfProject(project);
  }

  const path = pathOf(ask.uri);
  if (isReservedPath(path))
    return path === SESSION_PATH && audience !== 'sso' && ask.method === 'GET'
      ? arrival(ask, host, audience, known)
      : { kind: 'not_found' };

  if (ask.door.kind === 'project') {
    const check = readReach(known.gatewaySecrets, ask.authorization, { project_id: ask.door.id, path: ask.uri }, known.now);
    if (check !== null)
      return check.valid !== null && ask.method === 'GET'
        ? { kind: 'reach', host, code: check.valid, cookie: withoutOurCookies(ask.cookie) }
        : { kind: 'bad_token' };
  }

  const token = deviceTokenIn(ask.authorization);
  if (token !== null) return byToken(token, ask, host, known);

  const session = sessionIn(ask, audience, known);
  if (session === null) {
    if (!isNavigation(ask)) return { kind: 'unauthenticated', host, uri: ask.uri };
    // A login would end here again, without an end: its cookie would not be among those that are checked.
    return hasTooMany(ask.cookie) ? { kind: 'too_many_cookies', host, uri: ask.uri } : { kind: 'login', host, uri: ask.uri };
  }
  if (ask.door.kind === 'admin' && !known.adminEmails.includes(session.identity.email.toLowerCase()))
    return { kind: 'forbidden', why: 'not_admin', email: session.identity.email };
  return {
    kind: 'pass',
    host,
    identity: session.identity,
    until: session.expires_at,
    tokenId: null,
    sessionId: session.id,
    scope: null,
    cookie: withoutOurCookies(ask.cookie),
    authorization: withoutDeviceToken(ask.authorization),
  };
}

/** Signed, for here, not ended, neither revoked nor its owner disabled. Of several cookies the first that is all that. */
function sessionIn(ask: Ask, audience: Audience, { sessions, view }: Knowledge): Session | null {
  for (const value of cookiesNamed(ask.cookie, SESSION_COOKIE)) {
    const session = sessions.open(value, audience);
    if (session !== null && isGood(session, view)) return session;
  }
  return null;
}

/** The browser comes back from the auth host with a one-time code. */
function arrival(ask: Ask, host: string, audience: Audience, known: Knowledge): Decision {
  const query = new URLSearchParams(ask.uri.slice(SESSION_PATH.length));
  const redirect = query.get('redirect') ?? '/';
  const nonces = noncesIn(ask.cookie, known.secure);
  for (const nonce of nonces) {
    const code = known.codes.read(query.get('code') ?? '', host, nonce);
    if (code === null) continue;
    return isGood(code.session, known.view)
      ? { kind: 'redeem', host, audience, code, redirect }
      : { kind: 'no_code', why: 'ended', host, redirect };
  }
  if (sessionIn(ask, audience, known) !== null) return { kind: 'no_code', why: 'signed_in', host, redirect };
  return { kind: 'no_code', why: nonces.length === 0 ? 'no_nonce' : 'bad_code', host, redirect };
}

// ---- Bearer tokens (RFC 6750)

/** Longer than any of ours; what is longer is not hashed. */
const MAX_TOKEN = 200;

/** Section 2.1; the scheme in any case (RFC 9110 section 11.1). null: whatever it is, it is the application's own. */
function deviceTokenIn(authorization: string | undefined): string | null {
  const token = trimOws(/^bearer[ \t]+(.*)$/i.exec(authorization ?? '')?.[1] ?? '');
  return token.startsWith(DEVICE_TOKEN_PREFIX) ? token : null;
}

/** A token that does not open is never passed over for the cookie: section 3.1, invalid_token. */
function byToken(token: string, ask: Ask, host: string, { view, now }: Knowledge): Decision {
  // The admin door is for people who signed in (contract, Authentication 6).
  if (token.length > MAX_TOKEN || ask.door.kind === 'admin') return { kind: 'bad_token' };
  const found = view.deviceToken(token);
  if (found === undefined || view.isDisabled(found.identity.email)) return { kind: 'bad_token' };
  const until = Date.parse(found.expires_at);
  if (!(until > now)) return { kind: 'bad_token' };
  return {
    kind: 'pass',
    host,
    identity: found.identity,
    until,
    tokenId: found.id,
    sessionId: null,
    scope: found.scope ?? 'projects',
    cookie: withoutOurCookies(ask.cookie),
    authorization: undefined,
  };
}

const DEVICE_TOKEN = new RegExp(DEVICE_TOKEN_PATTERN);
/** One of ours in an odd place (another scheme, a list) opens nothing here and must not reach an application either. */
const withoutDeviceToken = (authorization: string | undefined): string | undefined =>
  authorization !== undefined && DEVICE_TOKEN.test(authorization) ? undefined : authorization;

// ---- The request

/** Whether a person's browser goes to a page: only then is a redirect to the login of use. */
export function isNavigation(ask: Ask): boolean {
  if (ask.method !== 'GET' && ask.method !== 'HEAD') return false;
  if (ask.upgrade !== undefined) return false;
  if (ask.requestedWith?.toLowerCase() === 'xmlhttprequest') return false;
  // Fetch Metadata, section 2.4: only a navigation shows what it gets.
  if (ask.fetchMode !== undefined && ask.fetchMode !== 'navigate') return false;
  return acceptsHtml(ask.accept);
}

function acceptsHtml(accept: string | undefined): boolean {
  if (accept === undefined || accept.length > 4096) return false;
  return accept.split(',').some((range) => {
    const [type = '', ...parameters] = range.split(';').map((p) => trimOws(p).toLowerCase());
    // RFC 9110 section 12.4.2: a weight of 0 means "not acceptable".
    return (type === 'text/html' || type === 'application/xhtml+xml') && !parameters.some((p) => /^q=0(\.0{0,3})?$/.test(p));
  });
}

/** Without port, lower case; null: no host name at all. */
function hostOf(given: string): string | null {
  const match = /^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?)(:\d{1,5})?$/i.exec(given);
  return match?.[1]?.toLowerCase() ?? null;
}

const isUnder = (host: string, { baseDomain, authHost }: Knowledge): boolean =>
  host === authHost || host === baseDomain || host.endsWith(`.${baseDomain}`);

/** As it was sent, without the query. */
export function pathOf(uri: string): string {
  const query = uri.indexOf('?');
  const path = query === -1 ? uri : uri.slice(0, query);
  const fragment = path.indexOf('#');
  return fragment === -1 ? path : path.slice(0, fragment);
}
