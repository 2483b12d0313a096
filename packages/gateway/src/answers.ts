/** What /verify answers for each decision. A `Location` is absolute: Traefik resolves a relative one against our own address. */
import { randomBytes, randomUUID } from 'node:crypto';
import type { Identity } from '@berth/wire/gateway';
import { ERRORS, type ErrorCode } from '@berth/wire/errors';
import { challengeOf } from './codes.ts';
import { NONCE_MAX_AGE_SECONDS, nonceCookieName, noncesIn, SESSION_COOKIE, setCookie } from './cookies.ts';
import { type Ask, type Decision, isNavigation, pathOf } from './forward-auth.ts';
import { REFUSALS } from './login/refusal.ts';
import { PAGE_HEADERS } from './pages/layout.ts';
import { cookiesBlockedPage, problemPage } from './pages/problem.ts';
import { PROBLEM_TYPE, problemOf } from './problem.ts';
import { localPath } from './redirect.ts';
import type { Session } from './deps.ts';

/** `headers`: name, value, name, value, as node:http writes them fastest. */
export type Answer = { status: number; headers: string[]; body: string };

/** Longer ones would not come back (redirect.ts): the person gets to the page's path, or to the first page. */
const MAX_RETURN = 1900;
export const RETRY_AFTER_SECONDS = 5;

type Refused = Exclude<Decision, { kind: 'pass' } | { kind: 'redeem' } | { kind: 'reach' }>;

export type Answers = {
  pass(identity: Identity, assertion: string, cookie: string | undefined, authorization: string | undefined): Answer;
  /** Lets in a request that is nobody's: the project gets no identity. */
  passNobody(cookie: string | undefined): Answer;
  refuse(decision: Refused, ask: Ask): Answer;
  /** The code was taken: the session begins at this host. */
  arrived(host: string, redirect: string, value: string, session: Session): Answer;
  used(host: string, redirect: string, ask: Ask): Answer;
  doubt(ask: Ask | null): Answer;
};

export function createAnswers(publicUrl: string, now: () => number): Answers {
  const own = new URL(publicUrl);
  const secure = own.protocol === 'https:';
  const port = own.port === '' ? '' : `:${own.port}`;
  const urlOf = (host: string, path: string): string => `${own.protocol}//${host}${port}${path}`;
  const loginUrl = (page: string): string => `${publicUrl}/_oauth/login?redirect=${encodeURIComponent(page)}`;

  function login(host: string, uri: string, ask: Ask): Answer {
    const page = urlOf(host, comeBackTo(uri));
    // At the auth host itself no code is needed to get there.
    if (host === own.hostname) return redirect(loginUrl(page), []);
    // The same for every tab that is opened later, so that they do not pile up.
    const nonce = noncesIn(ask.cookie, secure)[0] ?? randomBytes(32).toString('base64url');
    const challenge = challengeOf(nonce);
    return redirect(`${loginUrl(page)}&challenge=${challenge}`, [
      setCookie(nonceCookieName(secure, challenge), nonce, { maxAgeSeconds: NONCE_MAX_AGE_SECONDS, secure }),
    ]);
  }

  function refuse(decision: Refused, ask: Ask): Answer {
    switch (decision.kind) {
      case 'login':
        return login(decision.host, decision.uri, ask);
      case 'too_many_cookies':
        return tooManyCookies(urlOf(decision.host, comeBackTo(decision.uri)));
      case 'unauthenticated':
        return problem('unauthenticated', 'open login_url in a browser, or send a device token', {
          // RFC 6750 section 3.1: no error where nothing was tried.
          headers: ['WWW-Authenticate', 'Bearer'],
          more: { login_url: loginUrl(urlOf(decision.host, '/')) },
        });
      case 'bad_token':
        return problem('unauthenticated', 'the device token is unknown, has ended or was revoked', {
          headers: ['WWW-Authenticate', 'Bearer error="invalid_token"'],
        });
      case 'forbidden':
        return forbidden(decision, ask);
      case 'not_found':
        return problem('not_found', 'paths under /_oauth/ are not the project’s');
      case 'no_code':
        return noCode(decision, ask);
      case 'doubt':
        return doubt(ask);
    }
  }

  function noCode({ why, host, redirect: to }: Extract<Decision, { kind: 'no_code' }>, ask: Ask): Answer {
    const again = urlOf(host, localPath(to));
    if (why === 'signed_in') return redirect(again, []);
    if (!isNavigation(ask)) return problem('bad_request', 'this sign-in link opens nothing here (any more)');
    // Not another redirect: without cookies that would never end.
    if (why === 'no_nonce') return page(400, cookiesBlockedPage(reference(), again));
    return expiredLink(again);
  }

  const tooManyCookies = (again: string): Answer => {
    const { status, title, what, todo, action } = REFUSALS.too_many_cookies;
    return page(status, problemPage({ title, what, todo, reference: reference(), action: { href: again, label: action } }));
  };

  const expiredLink = (again: string): Answer =>
    page(
      400,
      problemPage({
        title: 'This sign-in link is no longer valid',
        what: 'It holds for a minute and works once, in the browser that began the sign-in.',
        todo: 'Open the page again; you will not need to sign in anew if you just did.',
        reference: reference(),
        action: { href: again, label: 'Open the page again' },
      }),
    );

  function forbidden({ why, email }: Extract<Decision, { kind: 'forbidden' }>, ask: Ask): Answer {
    const detail = FORBIDDEN[why];
    if (!isNavigation(ask)) return problem('forbidden', detail);
    const signOut = email === undefined ? null : { href: `${publicUrl}/_oauth/logout`, label: 'Sign out' };
    const who = email === undefined ? '' : ` You are signed in as ${email}.`;
    return page(
      403,
      problemPage({
        title: 'You may not go here',
        what: `${detail[0]?.toUpperCase()}${detail.slice(1)}.${who}`,
        todo: email === undefined ? 'Check the address.' : 'Sign out and use another account, or ask your administrator.',
        reference: reference(),
        action: signOut,
      }),
    );
  }

  function doubt(ask: Ask | null): Answer {
    const headers = ['Retry-After', String(RETRY_AFTER_SECONDS)];
    if (ask === null || !isNavigation(ask))
      return problem('policy_unknown', 'whether this request may pass cannot be known right now; try again', { headers });
    return page(
      503,
      problemPage({
        title: 'Not right now',
        what: 'Whether you may go here cannot be known at the moment: a part of the platform is away.',
        todo: 'Try again in a few seconds.',
        reference: reference(),
        action: { href: urlOf(hostIn(ask), comeBackTo(pathOf(ask.uri))), label: 'Try again' },
      }),
      headers,
    );
  }
  const hostIn = (ask: Ask): string => /^[a-z0-9.-]+/i.exec(ask.host)?.[0] ?? own.hostname;

  return {
    pass,
    passNobody: (cookie) => ({
      status: 200,
      headers: [...(cookie === undefined ? [] : ['Cookie', cookie]), 'Content-Length', '0'],
      body: '',
    }),
    refuse,
    arrived(host, to, value, session) {
      const maxAgeSeconds = (session.expires_at - now()) / 1000;
      return redirect(urlOf(host, localPath(to)), [setCookie(SESSION_COOKIE, value, { maxAgeSeconds, secure })]);
    },
    used: (host, to, ask) =>
      isNavigation(ask) ? expiredLink(urlOf(host, localPath(to))) : problem('bad_request', 'this sign-in link was used already'),
    doubt,
  };
}

const FORBIDDEN = {
  incomplete: 'the proxy did not say what was asked for',
  unknown_project: 'this project is not known here',
  unknown_host: 'this host is not one of this platform',
  wrong_host: 'this host does not belong to the project',
  not_admin: 'only administrators get here',
} as const;

function pass(
  { email, name, avatar_url, provider }: Identity,
  assertion: string,
  cookie: string | undefined,
  authorization: string | undefined,
): Answer {
  const headers = ['X-Forwarded-User', asBytes(email), 'X-Forwarded-User-Provider', provider];
  if (name !== null && name !== '') headers.push('X-Forwarded-User-Name', percentEncoded(name));
  if (avatar_url !== null && avatar_url !== '') headers.push('X-Forwarded-User-Avatar', percentEncoded(avatar_url));
  headers.push('X-Forwarded-User-Assertion', assertion);
  // What is not given back here the proxy takes out of the request.
  if (cookie !== undefined) headers.push('Cookie', cookie);
  if (authorization !== undefined) headers.push('Authorization', authorization);
  headers.push('Content-Length', '0');
  return { status: 200, headers, body: '' };
}

/** INTERFACES.md: `%` and all outside printable ASCII, as UTF-8; a space at an end would be lost on the way. */
export function percentEncoded(text: string): string {
  const encoded = text.toWellFormed().replace(/[^ -$&-~]+/gu, encodeURIComponent);
  return encoded.replace(/^ +| +$/g, (spaces) => '%20'.repeat(spaces.length));
}
/** The contract's header is the address itself; one beyond ASCII goes as UTF-8, which node:http takes a byte a character. */
const asBytes = (text: string): string => Buffer.from(text, 'utf8').toString('latin1');

function comeBackTo(uri: string): string {
  if (!uri.startsWith('/')) return '/';
  if (uri.length <= MAX_RETURN) return uri;
  const path = pathOf(uri);
  return path.length <= MAX_RETURN ? path : '/';
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

export function problem(code: ErrorCode, detail: string, { headers = [], more = {} }: { headers?: string[]; more?: object } = {}): Answer {
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
