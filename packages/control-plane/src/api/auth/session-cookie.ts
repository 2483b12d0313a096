/**
 * The session cookie of the dashboard (RFC 6265). A request with `X-Session: cookie` at a sign-in gets the token as a cookie that no
 * script can read. Programs send `Authorization`, and nothing changes for them.
 *
 * SameSite does not separate the dashboard from the projects: `shop.BASE_DOMAIN` is the same site. So Berth reads the cookie only for
 * requests of the same origin (Fetch Metadata), and a change must name that origin.
 */
import type { LoginAnswer } from '@berth/wire/access';
import { API_TOKEN_PREFIX } from '@berth/wire/token';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { DomainError } from '../../domain/errors.ts';

/** Lifetime in seconds of the cookie and of the token in it. The session can end earlier. */
export const COOKIE_SECONDS = 7 * 86_400;
const REQUEST_HEADER = 'x-session';
const SAFE = new Set(['GET', 'HEAD', 'OPTIONS']);

export type SessionCookies = {
  /** Returns `Authorization`, or the cookie's token in that form. Throws forbidden for a change by another origin. */
  credentialOf(request: FastifyRequest): string | undefined;
  /** Whether the answer to this sign-in is a cookie. */
  isWanted(request: FastifyRequest): boolean;
  /** Sets the cookie. Returns the answer without tokens, so that no script of the page can read them. */
  give(reply: FastifyReply, answer: LoginAnswer): LoginAnswer;
  clear(reply: FastifyReply): void;
};

export function createSessionCookies(publicUrl: string): SessionCookies {
  const isSecure = publicUrl.startsWith('https:');
  const origin = new URL(publicUrl).origin;
  // Browsers accept a __Host- cookie only from this host itself (RFC 6265bis section 4.1.3.2): no project can set it for the dashboard.
  const name = isSecure ? '__Host-berth_dashboard' : 'berth_dashboard';
  const attributes = `Path=/; HttpOnly; SameSite=Strict${isSecure ? '; Secure' : ''}`;

  const cookieOf = (request: FastifyRequest): string | undefined => {
    const found = (request.headers.cookie ?? '').split(';').flatMap((pair) => {
      const [key, value] = pair.trim().split('=', 2);
      return key === name && value !== undefined && value !== '' ? [value] : [];
    });
    const [token] = found;
    // Two cookies of one name: another host of the site set one. A personal token belongs into a header.
    return found.length !== 1 || token === undefined || token.startsWith(API_TOKEN_PREFIX) ? undefined : token;
  };

  /** A browser sends Origin with every change. One without it says by Sec-Fetch-Site where the request comes from. */
  const isOwnOrigin = ({ headers }: FastifyRequest): boolean => {
    const from = headers.origin;
    if (from === undefined) return headers['sec-fetch-site'] === 'same-origin';
    return from === origin || (headers.host !== undefined && (from === `http://${headers.host}` || from === `https://${headers.host}`));
  };

  return {
    credentialOf(request) {
      const { authorization } = request.headers;
      if (authorization !== undefined) return authorization;
      const token = cookieOf(request);
      if (token === undefined) return undefined;
      const site = request.headers['sec-fetch-site'];
      if (SAFE.has(request.method)) return site === 'same-site' || site === 'cross-site' ? undefined : `Bearer ${token}`;
      if (isOwnOrigin(request) && site !== 'same-site' && site !== 'cross-site') return `Bearer ${token}`;
      throw new DomainError('forbidden', 'a page of another origin must not change anything with the session of its visitor');
    },
    isWanted: (request) =>
      request.headers[REQUEST_HEADER] === 'cookie' || (request.headers.authorization === undefined && cookieOf(request) !== undefined),
    give(reply, answer) {
      void reply.header('set-cookie', `${name}=${answer.token}; ${attributes}; Max-Age=${COOKIE_SECONDS}`);
      return { ...answer, token: '', refresh_token: '', expires_in: COOKIE_SECONDS };
    },
    clear: (reply) => void reply.header('set-cookie', `${name}=; ${attributes}; Max-Age=0`),
  };
}
