/**
 * Errors of the device endpoints in the form of RFC 6749 section 5.2 and RFC 8628 section 3.5: 400
 * `{error, error_description}`.
 */
import { CodedError } from '@berth/kit/coded-error';
import { ApiError, UnreachableError } from '@berth/wire/client';
import type { FastifyReply, FastifyRequest } from 'fastify';

export const OAUTH_ERRORS = {
  authorization_pending: {
    status: 400,
    text: 'the person has not decided yet; poll again after `interval` seconds',
  },
  slow_down: {
    status: 400,
    text: 'the device polls too often; increase the interval by 5 seconds',
  },
  access_denied: { status: 400, text: 'the person denied the request' },
  expired_token: { status: 400, text: 'the device code has expired; request a new one' },
  invalid_grant: { status: 400, text: 'the device code is unknown or was already used' },
  invalid_request: { status: 400, text: 'the request is malformed' },
  /**
   * RFC 6585 section 4. The OAuth errors above describe the device code, so none of them applies
   * here.
   */
  too_many_requests: { status: 429, text: 'too many requests; try again later' },
  temporarily_unavailable: {
    status: 503,
    text: 'the platform does not answer at the moment; try again later',
  },
} as const;
export type OauthErrorCode = keyof typeof OAUTH_ERRORS;

export class OauthError extends CodedError<OauthErrorCode> {
  override name = 'OauthError';
  constructor(code: OauthErrorCode, text: string = OAUTH_ERRORS[code].text) {
    super(code, text);
  }
}

/** RFC 6749 section 5.1: answers must not be cached. */
export const NO_STORE = {
  'cache-control': 'no-store',
  pragma: 'no-cache',
  'x-content-type-options': 'nosniff',
} as const;

export function sendOauthError(
  error: Error & { statusCode?: number },
  request: FastifyRequest,
  reply: FastifyReply,
): void {
  const oauthError = translate(error);
  if (oauthError.code === 'temporarily_unavailable')
    request.log.warn({ why: error.message }, 'device endpoint unavailable');
  const { status } = OAUTH_ERRORS[oauthError.code];
  if (status === 503) void reply.header('retry-after', '5');
  if (status === 429) void reply.header('retry-after', '60');
  void reply
    .code(status)
    .headers(NO_STORE)
    .send({ error: oauthError.code, error_description: oauthError.message });
}

function translate(error: Error & { statusCode?: number }): OauthError {
  if (error instanceof OauthError) return error;
  if (error instanceof UnreachableError) return new OauthError('temporarily_unavailable');
  if (error instanceof ApiError)
    return new OauthError(error.status === 429 ? 'too_many_requests' : 'temporarily_unavailable');
  // The body parser failed: the body is too large or not JSON.
  if (error.statusCode !== undefined && error.statusCode < 500)
    return new OauthError('invalid_request', 'the request body could not be read');
  return new OauthError('temporarily_unavailable');
}
