/**
 * The session cookie of the dashboard (RFC 6265). A sign-in with `X-Session: cookie` gets the token
 * in a cookie that no script can read. Programs still send `Authorization`.
 *
 * SameSite does not separate the dashboard from the projects: `shop.BASE_DOMAIN` is the same site.
 * So Berth reads the cookie only for requests of the same origin (Fetch Metadata), and a request
 * that changes something must name that origin.
 */
import { cookiesNamed } from '@berth/kit/cookie-header';
import type { LoginAnswer } from '@berth/wire/access';
import { API_TOKEN_PREFIX } from '@berth/wire/token';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { DomainError } from '../../domain/platform/errors.ts';
import type { Caller, Callers } from './callers.ts';

/** Lifetime in seconds of the cookie and its token. The session can end earlier. */
export const COOKIE_SECONDS = 7 * 86_400;
const REQUEST_HEADER = 'x-session';
/**
 * Header with the account that the person chose, percent-encoded. The gateway session can change
 * between the choice and the sign-in.
 */
const ACCOUNT_HEADER = 'x-session-account';
const SAFE = new Set(['GET', 'HEAD', 'OPTIONS']);
/**
 * Maximum number of cookies to check. Another host of the site can set cookies of this name over
 * http, and each check costs time.
 */
const MAX_TRIED = 32;

export type SessionCookies = {
  /**
   * Returns the user of `Authorization` or of the cookie. Throws unauthenticated, and forbidden for
   * a change by another origin.
   */
  callerOf(request: FastifyRequest, callers: Pick<Callers, 'user'>): Promise<Caller>;
  /** Returns whether the request names no page, or a page of this origin. */
  hasOwnOrigin(request: FastifyRequest): boolean;
  /** Returns whether the answer to this sign-in must set the cookie. */
  isWanted(request: FastifyRequest): boolean;
  /** Throws forbidden if the request names another account. */
  mustBeFor(request: FastifyRequest, email: string): void;
  /** Sets the cookie. Returns the answer without tokens, so that no script can read them. */
  give(reply: FastifyReply, answer: LoginAnswer): LoginAnswer;
  clear(reply: FastifyReply): void;
};

export function createSessionCookies(publicUrl: string): SessionCookies {
  const isSecure = publicUrl.startsWith('https:');
  const origin = new URL(publicUrl).origin;
  // The prefix __Host- makes browsers accept the cookie only from this host itself (RFC 6265bis
  // section 4.1.3.2), so no project can set it for the dashboard.
  const name = isSecure ? '__Host-berth_dashboard' : 'berth_dashboard';
  const attributes = `Path=/; HttpOnly; SameSite=Strict${isSecure ? '; Secure' : ''}`;

  /** Ignore personal tokens: they belong in a header. */
  const tokensOf = (request: FastifyRequest): string[] =>
    cookiesNamed(request.headers.cookie, name, MAX_TRIED).filter(
      (token) => token !== '' && !token.startsWith(API_TOKEN_PREFIX),
    );

  /**
   * Browsers send Origin with every change. In a request without Origin, Sec-Fetch-Site says where
   * the request comes from.
   */
  const isOwnOrigin = ({ headers }: FastifyRequest): boolean => {
    const from = headers.origin;
    if (from === undefined) return headers['sec-fetch-site'] === 'same-origin';
    return (
      from === origin ||
      (headers.host !== undefined &&
        (from === `http://${headers.host}` || from === `https://${headers.host}`))
    );
  };

  return {
    async callerOf(request, callers) {
      const { authorization } = request.headers;
      const [token, ...more] = authorization === undefined ? tokensOf(request) : [];
      if (token === undefined) return callers.user(authorization);
      const site = request.headers['sec-fetch-site'];
      const isOther = site === 'same-site' || site === 'cross-site';
      if (SAFE.has(request.method) && isOther) return callers.user(undefined);
      if (!SAFE.has(request.method) && (isOther || !isOwnOrigin(request)))
        throw new DomainError(
          'forbidden',
          'a page of another origin must not use the visitor’s session to change anything',
        );
      return more.length === 0 ? callers.user(`Bearer ${token}`) : oneOf(callers, [token, ...more]);
    },
    hasOwnOrigin: (request) => request.headers.origin === undefined || isOwnOrigin(request),
    isWanted: (request) =>
      request.headers[REQUEST_HEADER] === 'cookie' ||
      (request.headers.authorization === undefined && tokensOf(request).length > 0),
    mustBeFor({ headers }, email) {
      const wanted = headers[ACCOUNT_HEADER];
      if (wanted === undefined || wanted === encodeURIComponent(email)) return;
      throw new DomainError(
        'forbidden',
        `the session of the gateway is of ${email}, not of the account that you chose; nobody ` +
          'was signed in. ' +
          'Delete the cookies of this site, then sign in again',
      );
    },
    give(reply, answer) {
      void reply.header(
        'set-cookie',
        `${name}=${answer.token}; ${attributes}; Max-Age=${COOKIE_SECONDS}`,
      );
      return { ...answer, token: '', refresh_token: '', expires_in: COOKIE_SECONDS };
    },
    clear: (reply) => void reply.header('set-cookie', `${name}=; ${attributes}; Max-Age=0`),
  };
}

/**
 * Returns the user of the one valid session among several cookies. The other cookies are expired,
 * or another host of the site set them. Refuses valid sessions of two people: a cookie from another
 * host must not replace the visitor's session.
 */
async function oneOf(callers: Pick<Callers, 'user'>, tokens: readonly string[]): Promise<Caller> {
  const callersById = new Map<string, Caller>();
  for (const token of tokens) {
    try {
      const caller = await callers.user(`Bearer ${token}`);
      if (!callersById.has(caller.id)) callersById.set(caller.id, caller);
    } catch (error) {
      if (!(error instanceof DomainError && error.code === 'unauthenticated')) throw error;
    }
  }
  const [caller, ...others] = callersById.values();
  if (caller === undefined)
    throw new DomainError('unauthenticated', 'the session has ended; sign in again');
  if (others.length > 0)
    throw new DomainError(
      'unauthenticated',
      'the browser sent sessions of several people; delete the cookies of this site, then sign ' +
        'in again',
    );
  return caller;
}
