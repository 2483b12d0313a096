/**
 * The decision of /verify, as a pure function: request and context come in as data, and the
 * decision is data. The only step that needs I/O (to redeem a one-time code) is part of the
 * decision. Guards come first; only the last lines let a request pass.
 *
 *   no policy loaded                              unavailable       503
 *   unknown host, unknown or wrong project        forbidden         403
 *   /_oauth/session at a project's host           redeem            check the code, then redeem it
 *   any other reserved path                       not_found         404
 *   reach check of the control plane, valid       reach             redeem its id, then pass
 *   reach check of the control plane, invalid     bad_token         401
 *   device token, valid                           pass
 *   device token, invalid                         bad_token         401
 *   session of a non-admin at /verify/admin       forbidden         403
 *   session of this audience                      pass
 *   no session, navigation of a browser           login             302, for a form 303
 *   no session, any other request                 unauthenticated   401
 *   no session, but too many session cookies      too_many_cookies  an error page
 */
import { trimOws } from '@berth/kit/ows';
import { readReach } from '@berth/kit/reach-token';
import { DEVICE_TOKEN_PATTERN, type DeviceScope, type Identity } from '@berth/wire/gateway';
import { deviceTokenIn, MAX_TOKEN } from './bearer.ts';
import {
  cookiesNamed,
  hasTooMany,
  noncesIn,
  SESSION_COOKIE,
  withoutOurCookies,
} from './cookies.ts';
import {
  type Audience,
  type OneTimeCodes,
  type PolicyView,
  type Session,
  type Sessions,
} from './deps.ts';
import { isActive } from './policy-view.ts';
import { isReservedPath } from './redirect.ts';
import { isPlatformHost, siteAt } from './site.ts';

/** The proxy middleware that sent the request (docs/interfaces.md "Verify endpoints"). */
export type Middleware = { kind: 'project'; id: string } | { kind: 'any' } | { kind: 'admin' };

/**
 * The client's request, as the headers of the proxy's request describe it. Its identity headers are
 * never read.
 */
export type Ask = {
  middleware: Middleware;
  method: string;
  /** X-Forwarded-Host, possibly with a port. */
  host: string;
  /** Path and query. */
  uri: string;
  accept: string | undefined;
  origin: string | undefined;
  referer: string | undefined;
  fetchMode: string | undefined;
  requestedWith: string | undefined;
  /**
   * Value of Upgrade or, because proxies drop hop-by-hop headers in their request to /verify, of
   * Sec-WebSocket-Key.
   */
  upgrade: string | undefined;
  cookie: string | undefined;
  authorization: string | undefined;
};

export type DecisionContext = {
  view: PolicyView;
  sessions: Pick<Sessions, 'open'>;
  codes: Pick<OneTimeCodes, 'read'>;
  baseDomain: string;
  /** Host of PUBLIC_URL. */
  authHost: string;
  /** True if PUBLIC_URL is https. */
  secure: boolean;
  adminEmails: readonly string[];
  /** GATEWAY_SECRET, with which the control plane signs its reach checks. */
  gatewaySecrets: readonly string[];
  now: number;
};

/** `host` is in lower case and without a port. */
export type Decision =
  | {
      kind: 'pass';
      host: string;
      identity: Identity;
      /** Time in ms at which the decision expires at the latest. */
      until: number;
      /** Id of the device token, if one was used. */
      tokenId: string | null;
      /** Id of the session, if one was used. */
      sessionId: string | null;
      /** Scope of the device token; null for a session. */
      scope: DeviceScope | null;
      /** Cookie and Authorization headers that are forwarded to the project. */
      cookie: string | undefined;
      authorization: string | undefined;
    }
  | { kind: 'login'; host: string; uri: string }
  | { kind: 'too_many_cookies'; host: string; uri: string }
  | { kind: 'unauthenticated'; host: string; uri: string }
  | { kind: 'bad_token' }
  | {
      kind: 'forbidden';
      why: 'incomplete' | 'unknown_project' | 'unknown_host' | 'wrong_host' | 'not_admin';
      email?: string;
    }
  | { kind: 'not_found' }
  | {
      kind: 'redeem';
      host: string;
      audience: Audience;
      code: { id: string; session: Session; expires_at: number };
      redirect: string;
      /** Longest time for which the browser keeps the session cookie. */
      cookieSeconds: number;
    }
  /**
   * The one-time code is not usable. `signed_in`: the browser already has its session, from another
   * tab or a second click.
   */
  | {
      kind: 'no_code';
      why: 'signed_in' | 'no_nonce' | 'bad_code' | 'ended';
      host: string;
      redirect: string;
    }
  /**
   * The control plane checks whether the proxy reaches the project. The check has no identity and
   * works once.
   */
  | {
      kind: 'reach';
      host: string;
      code: { id: string; expires_at: number };
      cookie: string | undefined;
    }
  | { kind: 'unavailable' };

const SESSION_PATH = '/_oauth/session';

export function decide(ask: Ask, context: DecisionContext): Decision {
  const place = placeOf(ask, context);
  if ('kind' in place) return place;
  return (
    atReservedPath(ask, place, context) ??
    byReachCheck(ask, place, context) ??
    byToken(ask, place, context) ??
    bySession(ask, place, context)
  );
}

/** The host of a request, with its project and the audience of its cookies. */
type Place = {
  /** In lower case and without a port. */
  host: string;
  /** The audience of cookies at this host. */
  audience: Audience;
  /** The project that the host belongs to. */
  site: ReturnType<typeof siteAt>;
};

/** Returns the place of the request, or a refusal that applies to every sender. */
function placeOf(
  ask: Ask,
  context: DecisionContext,
): Place | Extract<Decision, { kind: 'unavailable' | 'forbidden' }> {
  const { view, authHost } = context;
  if (!view.loaded) return { kind: 'unavailable' };
  // Refuse a request without a path, because its path might be a reserved one.
  if (ask.uri === '') return { kind: 'forbidden', why: 'incomplete' };
  const host = hostOf(ask.host);
  if (host === null) return { kind: 'forbidden', why: 'unknown_host' };
  // A custom domain is valid only with the middleware of a project. The other middlewares protect
  // hosts of the platform.
  const site = siteAt(host, view, context);
  const isKnown =
    isPlatformHost(host, context) || (site !== undefined && ask.middleware.kind === 'project');
  if (!isKnown) return { kind: 'forbidden', why: 'unknown_host' };
  // The single sign-on cookie is valid only at the auth host. site.ts defines the audience of a
  // project's cookies.
  if (ask.middleware.kind !== 'project')
    return { host, audience: host === authHost ? 'sso' : `host:${host}`, site };
  const project = view.projectById(ask.middleware.id);
  if (project === undefined) return { kind: 'forbidden', why: 'unknown_project' };
  if (site?.project.id !== project.id) return { kind: 'forbidden', why: 'wrong_host' };
  return { host, audience: site.audience, site };
}

/**
 * Decides about a path under /_oauth/, which no project receives. Returns null for any other path.
 */
function atReservedPath(ask: Ask, place: Place, context: DecisionContext): Decision | null {
  const path = pathOf(ask.uri);
  if (!isReservedPath(path)) return null;
  const isArrival = path === SESSION_PATH && place.audience !== 'sso' && ask.method === 'GET';
  return isArrival ? arrival(ask, place, context) : { kind: 'not_found' };
}

/** Decides about a reach check of the control plane. Returns null for any other request. */
function byReachCheck(ask: Ask, { host }: Place, context: DecisionContext): Decision | null {
  if (ask.middleware.kind !== 'project') return null;
  const check = readReach(
    context.gatewaySecrets,
    ask.authorization,
    { project_id: ask.middleware.id, path: ask.uri },
    context.now,
  );
  if (check === null) return null;
  if (check.valid === null || ask.method !== 'GET') return { kind: 'bad_token' };
  return { kind: 'reach', host, code: check.valid, cookie: withoutOurCookies(ask.cookie) };
}

function bySession(ask: Ask, { host, audience }: Place, context: DecisionContext): Decision {
  const session = sessionIn(ask, audience, context);
  if (session === null) return withoutSession(ask, host);
  const { email } = session.identity;
  if (ask.middleware.kind === 'admin' && !context.adminEmails.includes(email.toLowerCase()))
    return { kind: 'forbidden', why: 'not_admin', email };
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

function withoutSession(ask: Ask, host: string): Decision {
  const { uri } = ask;
  if (!isNavigation(ask) && !sendsForm(ask)) return { kind: 'unauthenticated', host, uri };
  // With too many cookies, a login would cause endless redirects, because its cookie might not be
  // checked.
  return { kind: hasTooMany(ask.cookie) ? 'too_many_cookies' : 'login', host, uri };
}

/**
 * Returns the session of the first cookie that is signed, has this audience, and is neither expired
 * nor ended early.
 */
function sessionIn(
  ask: Ask,
  audience: Audience,
  { sessions, view }: DecisionContext,
): Session | null {
  for (const value of cookiesNamed(ask.cookie, SESSION_COOKIE)) {
    const session = sessions.open(value, audience);
    if (session !== null && isActive(session, view)) return session;
  }
  return null;
}

/** Handles a browser that returns from the auth host with a one-time code. */
function arrival(ask: Ask, { host, audience, site }: Place, context: DecisionContext): Decision {
  const cookieSeconds = site?.cookieSeconds ?? Number.POSITIVE_INFINITY;
  const query = new URLSearchParams(ask.uri.slice(SESSION_PATH.length));
  const redirect = query.get('redirect') ?? '/';
  const nonces = noncesIn(ask.cookie, context.secure);
  for (const nonce of nonces) {
    const code = context.codes.read(query.get('code') ?? '', host, nonce, site?.claim);
    if (code === null) continue;
    return isActive(code.session, context.view)
      ? { kind: 'redeem', host, audience, cookieSeconds, code, redirect }
      : { kind: 'no_code', why: 'ended', host, redirect };
  }
  if (sessionIn(ask, audience, context) !== null)
    return { kind: 'no_code', why: 'signed_in', host, redirect };
  return { kind: 'no_code', why: nonces.length === 0 ? 'no_nonce' : 'bad_code', host, redirect };
}

// ---- Bearer tokens (RFC 6750)

/**
 * Decides about a device token. Returns null if the request has none. An invalid token is refused,
 * even if the request also has a valid cookie (section 3.1, invalid_token).
 */
function byToken(ask: Ask, { host }: Place, { view, now }: DecisionContext): Decision | null {
  const token = deviceTokenIn(ask.authorization);
  if (token === null) return null;
  // Admin-only resources require a signed-in person (docs/contract.md "Admin-only resources").
  if (token.length > MAX_TOKEN || ask.middleware.kind === 'admin') return { kind: 'bad_token' };
  const device = view.deviceToken(token);
  if (device === undefined || view.isDisabled(device.identity.email)) return { kind: 'bad_token' };
  const until = Date.parse(device.expires_at);
  if (!(until > now)) return { kind: 'bad_token' };
  return {
    kind: 'pass',
    host,
    identity: device.identity,
    until,
    tokenId: device.id,
    sessionId: null,
    scope: device.scope ?? 'projects',
    cookie: withoutOurCookies(ask.cookie),
    authorization: undefined,
  };
}

const DEVICE_TOKEN = new RegExp(DEVICE_TOKEN_PATTERN);
/**
 * Returns undefined if the header contains a device token in another place (another scheme, a
 * list), because applications must not see the token.
 */
const withoutDeviceToken = (authorization: string | undefined): string | undefined =>
  authorization !== undefined && DEVICE_TOKEN.test(authorization) ? undefined : authorization;

// ---- The request

/** True if a browser opens a page. A redirect to the login makes sense only for a page. */
export const isNavigation = (ask: Ask): boolean => isRead(ask) && showsPage(ask);

/** True if a browser sends a form and shows the answer as a page. */
export const sendsForm = (ask: Ask): boolean => ask.method === 'POST' && showsPage(ask);

const isRead = ({ method }: Ask): boolean => method === 'GET' || method === 'HEAD';

function showsPage(ask: Ask): boolean {
  if (ask.upgrade !== undefined) return false;
  if (ask.requestedWith?.toLowerCase() === 'xmlhttprequest') return false;
  // Fetch Metadata section 2.4: only a navigation shows its result to the person.
  if (ask.fetchMode !== undefined && ask.fetchMode !== 'navigate') return false;
  return acceptsHtml(ask.accept);
}

function acceptsHtml(accept: string | undefined): boolean {
  if (accept === undefined || accept.length > 4096) return false;
  return accept.split(',').some((range) => {
    const [type = '', ...parameters] = range.split(';').map((p) => trimOws(p).toLowerCase());
    // RFC 9110 section 12.4.2: a weight of 0 means "not acceptable".
    return (
      (type === 'text/html' || type === 'application/xhtml+xml') &&
      !parameters.some((p) => /^q=0(\.0{0,3})?$/.test(p))
    );
  });
}

/** Returns the host name in lower case and without port, or null if it is not a host name. */
function hostOf(given: string): string | null {
  const match = /^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?)(:\d{1,5})?$/i.exec(given);
  return match?.[1]?.toLowerCase() ?? null;
}

/** Returns the path as it was sent, without query and fragment. */
export function pathOf(uri: string): string {
  const query = uri.indexOf('?');
  const path = query === -1 ? uri : uri.slice(0, query);
  const fragment = path.indexOf('#');
  return fragment === -1 ? path : path.slice(0, fragment);
}
