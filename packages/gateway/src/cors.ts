/**
 * Handles cross-origin requests to projects that require a login (Fetch, section 3.3). Browsers
 * send a preflight without a session, so the gateway answers it itself: the application gets no
 * request without an identity. Only the origins that the project lists can read answers and send
 * more than simple requests. The requests after a preflight need a session or a device token, like
 * all other requests.
 */
import type { IncomingMessage } from 'node:http';
import type { Policy } from '@berth/wire/gateway';
import type { Answer } from './answers.ts';
import type { PolicyView } from './deps.ts';
import { type Platform, siteAt } from './site.ts';

type Project = Policy['projects'][number];
const MAX_AGE_SECONDS = '600';
const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,40}$/;
/** Format of a list of header names, as browsers send it in a preflight. */
const NAMES = /^[!#$%&'*+.^_`|~0-9A-Za-z, -]{1,2000}$/;

/**
 * True if the project lists the origin. Answers name this origin and never `*`, because browsers
 * ignore `*` for requests with a session.
 */
const isAllowed = (origin: string | undefined, project: Project): origin is string =>
  origin !== undefined && project.cors_origins?.includes(origin) === true;

/**
 * Returns the headers with which the page can read an answer that the gateway gives instead of the
 * project, for example 401.
 */
export function corsHeaders(origin: string | undefined, project: Project): string[] {
  if (project.cors_origins === undefined) return [];
  return [
    'Vary',
    'Origin',
    ...(isAllowed(origin, project)
      ? [
          'Access-Control-Allow-Origin',
          origin,
          'Access-Control-Allow-Credentials',
          'true',
          'Access-Control-Expose-Headers',
          'WWW-Authenticate, Retry-After',
        ]
      : []),
  ];
}

/**
 * Returns the answer to a preflight for a host of a project that requires a login, or null for
 * every other request.
 */
export function preflightAnswer(
  { method, headers }: IncomingMessage,
  view: PolicyView,
  platform: Platform,
): Answer | null {
  const wanted = headers['access-control-request-method'];
  if (method !== 'OPTIONS' || typeof wanted !== 'string' || headers.origin === undefined)
    return null;
  const site = siteAt(
    (headers.host ?? '').replace(/\.?(:\d+)?$/, '').toLowerCase(),
    view,
    platform,
  );
  if (site === undefined || site.project.auth_required === false) return null;
  const names = headers['access-control-request-headers'];
  const allowed = isAllowed(headers.origin, site.project)
    ? [
        'Access-Control-Allow-Origin',
        headers.origin,
        'Access-Control-Allow-Credentials',
        'true',
        'Access-Control-Max-Age',
        MAX_AGE_SECONDS,
        ...(TOKEN.test(wanted) ? ['Access-Control-Allow-Methods', wanted] : []),
        ...(typeof names === 'string' && NAMES.test(names)
          ? ['Access-Control-Allow-Headers', names]
          : []),
        // Private Network Access: allows a page from the internet to call a project at a private
        // address.
        ...(headers['access-control-request-private-network'] === 'true'
          ? ['Access-Control-Allow-Private-Network', 'true']
          : []),
      ]
    : [];
  const vary =
    'Origin, Access-Control-Request-Method, Access-Control-Request-Headers, ' +
    'Access-Control-Request-Private-Network';
  return {
    status: 204,
    headers: ['Vary', vary, 'Cache-Control', 'no-store', ...allowed],
    body: '',
  };
}
