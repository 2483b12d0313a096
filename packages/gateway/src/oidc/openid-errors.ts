/**
 * Translates errors of openid-client by their codes. Details of responses are dropped, because they
 * can contain tokens.
 */
import { ClientError, ResponseBodyError, WWWAuthenticateChallengeError } from 'openid-client';
import { messageOf } from '@berth/kit/message-of';
import { Refusal } from '../login/refusal.ts';
import { ProviderUnavailable } from './fetch.ts';

export function translate(id: string, error: unknown): Error {
  const unreachable = causes(error).find((e) => e instanceof ProviderUnavailable);
  if (unreachable !== undefined) return unreachable;
  // Error codes of RFC 6749 section 5.2.
  if (error instanceof ResponseBodyError && error.error === 'invalid_grant')
    return new Refusal('code_refused', { cause: error });
  if (error instanceof ResponseBodyError && error.error === 'access_denied')
    return new Refusal('provider_denied', { cause: error });
  // RFC 6749 section 5.2: a 401 of the token endpoint names the required scheme. A bearer challenge
  // comes from the userinfo endpoint.
  if (
    error instanceof ResponseBodyError &&
    (error.error === 'invalid_client' || error.error === 'unauthorized_client')
  )
    return new Refusal('client_refused', { detail: `${id}: ${reasonOf(error)}`, cause: error });
  if (
    error instanceof WWWAuthenticateChallengeError &&
    !error.cause.some(({ scheme }) => scheme === 'bearer')
  )
    return new Refusal('client_refused', { detail: `${id}: HTTP ${error.status}`, cause: error });
  if (error instanceof ClientError && CLAIMS_WRONG.has(error.code ?? ''))
    return new Refusal('identity_refused', { detail: reasonOf(error), cause: error });
  return new ProviderUnavailable(`${id}: ${reasonOf(error)}`, { cause: error });
}

/** Error codes of an invalid ID token (OpenID Connect Core section 3.1.3.7). */
const CLAIMS_WRONG = new Set([
  'OAUTH_INVALID_RESPONSE',
  'OAUTH_JWT_CLAIM_COMPARISON_FAILED',
  'OAUTH_JWT_TIMESTAMP_CHECK_FAILED',
  'OAUTH_JSON_ATTRIBUTE_COMPARISON_FAILED',
  'OAUTH_UNSUPPORTED_OPERATION',
]);

export function reasonOf(error: unknown): string {
  const inner = causes(error).find((e) => e instanceof ProviderUnavailable);
  if (inner !== undefined) return inner.message;
  if (error instanceof ResponseBodyError)
    return `${error.status} ${/^[\w.-]{1,60}$/.test(error.error) ? error.error : 'error'}`;
  if (error instanceof ClientError)
    return `${error.message}${error.code === undefined ? '' : ` (${error.code})`}`;
  return messageOf(error);
}

function causes(error: unknown): Error[] {
  const chain: Error[] = [];
  for (let e = error; e instanceof Error && chain.length < 5; e = e.cause) chain.push(e);
  return chain;
}
