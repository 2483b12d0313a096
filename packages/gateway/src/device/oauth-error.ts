/** Errors of the device endpoints as RFC 6749 section 5.2 and RFC 8628 section 3.5 write them: 400 `{error, error_description}`. */
import { ApiError, UnreachableError } from '@berth/wire/client';
import type { FastifyReply, FastifyRequest } from 'fastify';

export const OAUTH_ERRORS = {
  authorization_pending: { status: 400, text: 'nobody has decided yet: ask again after `interval` seconds' },
  slow_down: { status: 400, text: 'asked too soon: wait five seconds longer between two questions' },
  access_denied: { status: 400, text: 'the request was refused' },
  expired_token: { status: 400, text: 'the device code is too old: begin again' },
  invalid_grant: { status: 400, text: 'the device code is not known, or was used already' },
  invalid_scope: { status: 400, text: 'the scope is `projects` (the default) or `projects api`' },
  invalid_request: { status: 400, text: 'the request could not be understood' },
  /** RFC 6585 section 4: not about the device code, so none of the words above. */
  too_many_requests: { status: 429, text: 'too many requests: wait a little' },
  temporarily_unavailable: { status: 503, text: 'the platform does not answer right now: try again in a moment' },
} as const;
export type OauthErrorCode = keyof typeof OAUTH_ERRORS;

export class OauthError extends Error {
  override name = 'OauthError';
  readonly code: OauthErrorCode;
  constructor(code: OauthErrorCode, text: string = OAUTH_ERRORS[code].text) {
    super(text);
    this.code = code;
  }
}

/** RFC 6749 section 5.1: never from a cache. */
export const NO_STORE = { 'cache-control': 'no-store', pragma: 'no-cache', 'x-content-type-options': 'nosniff' } as const;

export function sendOauthError(error: Error & { statusCode?: number }, request: FastifyRequest, reply: FastifyReply): void {
  const known = translate(error);
  if (known.code === 'temporarily_unavailable') request.log.warn({ why: error.message }, 'device endpoint: not now');
  const { status } = OAUTH_ERRORS[known.code];
  if (status === 503) void reply.header('retry-after', '5');
  if (status === 429) void reply.header('retry-after', '60');
  void reply.code(status).headers(NO_STORE).send({ error: known.code, error_description: known.message });
}

function translate(error: Error & { statusCode?: number }): OauthError {
  if (error instanceof OauthError) return error;
  if (error instanceof UnreachableError) return new OauthError('temporarily_unavailable');
  if (error instanceof ApiError) return new OauthError(error.status === 429 ? 'too_many_requests' : 'temporarily_unavailable');
  // Of the body's parser: too large, not JSON.
  if (error.statusCode !== undefined && error.statusCode < 500) return new OauthError('invalid_request', 'the body could not be read');
  return new OauthError('temporarily_unavailable');
}
