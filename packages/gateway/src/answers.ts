/**
 * Builds the answer of /verify for each decision. `Location` is absolute, because Traefik resolves
 * a relative `Location` against the gateway's address.
 */
import { randomBytes, randomUUID } from 'node:crypto';
import type { Identity } from '@berth/wire/gateway';
import { ERRORS, type ErrorCode } from '@berth/wire/errors';
import { challengeOf } from './codes.ts';
import {
  NONCE_MAX_AGE_SECONDS,
  nonceCookieName,
  noncesIn,
  SESSION_COOKIE,
  setCookie,
} from './cookies.ts';
import { type Ask, type Decision, isNavigation, pathOf, sendsForm } from './forward-auth.ts';
import { REFUSALS } from './login/refusal.ts';
import { PAGE_HEADERS } from './pages/layout.ts';
import { cookiesBlockedPage, problemPage } from './pages/problem.ts';
import { PROBLEM_TYPE, problemOf } from './problem.ts';
import { localPath } from './redirect.ts';
import type { Session } from './deps.ts';

/** `headers` alternates names and values, the form that node:http writes fastest. */
export type Answer = { status: number; headers: string[]; body: string };

/**
 * Maximum length of a return address in characters; redirect.ts refuses longer targets. For a
 * longer address, the person returns to its path without the query, or to the first page.
 */
const MAX_RETURN = 1900;
export const RETRY_AFTER_SECONDS = 5;

type Refused = Exclude<Decision, { kind: 'pass' } | { kind: 'redeem' } | { kind: 'reach' }>;

export type Answers = {
  pass(
    identity: Identity,
    assertion: string,
    cookie: string | undefined,
    authorization: string | undefined,
  ): Answer;
  /** Lets a request pass without an identity. */
  passWithoutIdentity(cookie: string | undefined): Answer;
  refuse(decision: Refused, ask: Ask): Answer;
  /** Starts the session at this host after the one-time code was redeemed. */
  arrived(
    host: string,
    redirect: string,
    value: string,
    session: Session,
    cookieSeconds: number,
  ): Answer;
  /** Answers a request whose one-time code was already used. */
  used(host: string, redirect: string, ask: Ask): Answer;
  /** Answers 503, because a decision is not possible at the moment. */
  unavailable(ask: Ask | null): Answer;
};

/** The addresses of the platform, from PUBLIC_URL. */
type Site = { publicUrl: string; base: URL; secure: boolean };

export function createAnswers(publicUrl: string, now: () => number): Answers {
  const base = new URL(publicUrl);
  const site: Site = { publicUrl, base, secure: base.protocol === 'https:' };
  return {
    pass,
    passWithoutIdentity,
    refuse: (decision, ask) => refuse(site, decision, ask),
    arrived(host, to, value, session, cookieSeconds) {
      const maxAgeSeconds = Math.min((session.expires_at - now()) / 1000, cookieSeconds);
      return redirect(urlOf(site, host, localPath(to)), [
        setCookie(SESSION_COOKIE, value, { maxAgeSeconds, secure: site.secure }),
      ]);
    },
    used: (host, to, ask) =>
      isNavigation(ask)
        ? expiredLink(urlOf(site, host, localPath(to)))
        : problem('bad_request', 'this sign-in link was already used'),
    unavailable: (ask) => unavailable(site, ask),
  };
}

function urlOf({ base }: Site, host: string, path: string): string {
  const port = base.port === '' ? '' : `:${base.port}`;
  return `${base.protocol}//${host}${port}${path}`;
}

const loginUrl = ({ publicUrl }: Site, page: string): string =>
  `${publicUrl}/_oauth/login?redirect=${encodeURIComponent(page)}`;

function login(site: Site, host: string, uri: string, ask: Ask): Answer {
  const isForm = sendsForm(ask);
  // A form cannot be sent again. The person returns to the page of the form, and the login page
  // says that the form was not sent.
  const page = urlOf(site, host, isForm ? formPath(host, ask.referer) : returnPath(uri));
  const to = (url: string, cookies: readonly string[]): Answer =>
    isForm ? { ...redirect(`${url}&lost=form`, cookies), status: 303 } : redirect(url, cookies);
  // The session cookie of the auth host is valid there, so no one-time code is needed.
  if (host === site.base.hostname) return to(loginUrl(site, page), []);
  // Reuse the nonce of an earlier tab, so that nonce cookies do not pile up.
  const nonce = noncesIn(ask.cookie, site.secure)[0] ?? randomBytes(32).toString('base64url');
  const challenge = challengeOf(nonce);
  return to(`${loginUrl(site, page)}&challenge=${challenge}`, [
    setCookie(nonceCookieName(site.secure, challenge), nonce, {
      maxAgeSeconds: NONCE_MAX_AGE_SECONDS,
      secure: site.secure,
    }),
  ]);
}

function refuse(site: Site, decision: Refused, ask: Ask): Answer {
  switch (decision.kind) {
    case 'login':
      return login(site, decision.host, decision.uri, ask);
    case 'too_many_cookies':
      return tooManyCookies(urlOf(site, decision.host, returnPath(decision.uri)));
    case 'unauthenticated':
      return problem('unauthenticated', 'open login_url in a browser, or send a device token', {
        // RFC 6750 section 3.1: no error code if the request had no token.
        headers: ['WWW-Authenticate', 'Bearer'],
        more: { login_url: loginUrl(site, urlOf(site, decision.host, '/')) },
      });
    case 'bad_token':
      return problem('unauthenticated', 'the device token is unknown, expired or revoked', {
        headers: ['WWW-Authenticate', 'Bearer error="invalid_token"'],
      });
    case 'forbidden':
      return forbidden(site, decision, ask);
    case 'not_found':
      return problem('not_found', 'paths under /_oauth/ belong to the gateway, not to the project');
    case 'no_code':
      return noCode(site, decision, ask);
    case 'unavailable':
      return unavailable(site, ask);
  }
}

function noCode(
  site: Site,
  { why, host, redirect: to }: Extract<Decision, { kind: 'no_code' }>,
  ask: Ask,
): Answer {
  const pageUrl = urlOf(site, host, localPath(to));
  if (why === 'signed_in') return redirect(pageUrl, []);
  if (!isNavigation(ask))
    return problem('bad_request', 'this sign-in link is not valid here or has expired');
  // Do not redirect again: without cookies the redirects would never end.
  if (why === 'no_nonce') return page(400, cookiesBlockedPage(reference(), pageUrl));
  return expiredLink(pageUrl);
}

const tooManyCookies = (pageUrl: string): Answer => {
  const { status, title, what, todo, action } = REFUSALS.too_many_cookies;
  const body = problemPage({
    title,
    what,
    todo,
    reference: reference(),
    action: { href: pageUrl, label: action },
  });
  return page(status, body, ['Clear-Site-Data', '"cookies"']);
};

const expiredLink = (pageUrl: string): Answer =>
  page(
    400,
    problemPage({
      title: 'This sign-in link is no longer valid',
      what:
        'A sign-in link is valid for one minute. It works once, and only in the browser that ' +
        'started the sign-in.',
      todo: 'Open the page again. If you have just signed in, you do not need to sign in again.',
      reference: reference(),
      action: { href: pageUrl, label: 'Open the page again' },
    }),
  );

function forbidden(
  { publicUrl }: Site,
  { why, email }: Extract<Decision, { kind: 'forbidden' }>,
  ask: Ask,
): Answer {
  const detail = FORBIDDEN[why];
  if (!isNavigation(ask)) return problem('forbidden', detail);
  const signOut =
    email === undefined ? null : { href: `${publicUrl}/_oauth/logout`, label: 'Sign out' };
  const who = email === undefined ? '' : ` You are signed in as ${email}.`;
  return page(
    403,
    problemPage({
      title: 'You do not have access to this page',
      what: `${detail[0]?.toUpperCase()}${detail.slice(1)}.${who}`,
      todo:
        email === undefined
          ? 'Check the address.'
          : 'Sign out and use another account, or ask your administrator for access.',
      reference: reference(),
      action: signOut,
    }),
  );
}

function unavailable(site: Site, ask: Ask | null): Answer {
  const headers = ['Retry-After', String(RETRY_AFTER_SECONDS)];
  if (ask === null || !isNavigation(ask))
    return problem(
      'policy_unknown',
      'the gateway cannot check this request at the moment; try again',
      { headers },
    );
  return page(
    503,
    problemPage({
      title: 'Temporarily unavailable',
      what: 'Your access cannot be checked at the moment, because a part of the platform is down.',
      todo: 'Try again in a few seconds.',
      reference: reference(),
      action: {
        href: urlOf(site, hostIn(site, ask), returnPath(pathOf(ask.uri))),
        label: 'Try again',
      },
    }),
    headers,
  );
}

const hostIn = ({ base }: Site, ask: Ask): string =>
  /^[a-z0-9.-]+/i.exec(ask.host)?.[0] ?? base.hostname;

const FORBIDDEN = {
  incomplete: 'the proxy did not send the requested path',
  unknown_project: 'this project does not exist on this platform',
  unknown_host: 'this host does not belong to this platform',
  wrong_host: 'this host does not belong to the project',
  not_admin: 'only administrators have access',
} as const;

function pass(
  { email, name, avatar_url, provider }: Identity,
  assertion: string,
  cookie: string | undefined,
  authorization: string | undefined,
): Answer {
  const headers = ['X-Forwarded-User', asBytes(email), 'X-Forwarded-User-Provider', provider];
  if (name !== null && name !== '') headers.push('X-Forwarded-User-Name', percentEncoded(name));
  if (avatar_url !== null && avatar_url !== '')
    headers.push('X-Forwarded-User-Avatar', percentEncoded(avatar_url));
  headers.push('X-Forwarded-User-Assertion', assertion);
  // The proxy removes these headers from the request if the answer does not contain them.
  if (cookie !== undefined) headers.push('Cookie', cookie);
  if (authorization !== undefined) headers.push('Authorization', authorization);
  headers.push('Content-Length', '0');
  return { status: 200, headers, body: '' };
}

const passWithoutIdentity = (cookie: string | undefined): Answer => ({
  status: 200,
  headers: [...(cookie === undefined ? [] : ['Cookie', cookie]), 'Content-Length', '0'],
  body: '',
});

/**
 * Percent-encodes `%` and every character outside printable ASCII, as UTF-8 (docs/interfaces.md
 * "Identity headers"). Also encodes spaces at the ends, because they would be lost on the way.
 */
export function percentEncoded(text: string): string {
  const encoded = text.toWellFormed().replace(/[^ -$&-~]+/gu, encodeURIComponent);
  return encoded.replace(/^ +| +$/g, (spaces) => '%20'.repeat(spaces.length));
}
/**
 * Returns the text with one character per byte of its UTF-8 form, as node:http requires. The
 * contract requires the plain address in the header, which can contain non-ASCII characters.
 */
const asBytes = (text: string): string => Buffer.from(text, 'utf8').toString('latin1');

/** Returns the path to which the person returns after the sign-in. */
function returnPath(uri: string): string {
  if (!uri.startsWith('/')) return '/';
  if (uri.length <= MAX_RETURN) return uri;
  const path = pathOf(uri);
  return path.length <= MAX_RETURN ? path : '/';
}

/** Returns the path of the page with the form if the page is at this host, else the first page. */
function formPath(host: string, referer: string | undefined): string {
  const url = URL.parse(referer ?? '');
  return url?.hostname === host ? returnPath(localPath(`${url.pathname}${url.search}`)) : '/';
}

const NO_STORE = ['Cache-Control', 'no-store'];

const redirect = (location: string, cookies: readonly string[]): Answer => ({
  status: 302,
  headers: [
    'Location',
    location,
    ...NO_STORE,
    'Referrer-Policy',
    'no-referrer',
    ...cookies.flatMap((c) => ['Set-Cookie', c]),
    'Content-Length',
    '0',
  ],
  body: '',
});

export function problem(
  code: ErrorCode,
  detail: string,
  { headers = [], more = {} }: { headers?: string[]; more?: object } = {},
): Answer {
  return withBody(
    ERRORS[code].status,
    ['Content-Type', PROBLEM_TYPE, ...NO_STORE, ...headers],
    JSON.stringify(problemOf(code, detail, more)),
  );
}

const page = (status: number, body: string, headers: readonly string[] = []): Answer =>
  withBody(status, [...Object.entries(PAGE_HEADERS).flat(), ...headers], body);

const withBody = (status: number, headers: string[], body: string): Answer => ({
  status,
  headers: [...headers, 'Content-Length', String(Buffer.byteLength(body))],
  body,
});

const reference = (): string => randomUUID().slice(0, 8);
