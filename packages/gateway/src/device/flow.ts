/**
 * Serves the requests of a device (RFC 8628): POST /_oauth/device/code for its codes, and POST
 * /_oauth/device/token for its token.
 */
import { defined } from '@berth/kit/defined';
import { DEVICE_TOKEN_SECONDS, type DeviceScope } from '@berth/wire/gateway';
import type { FastifyInstance } from 'fastify';
import type { Context } from '../login/context.ts';
import { addressOf, userAgentOf } from '../login/request.ts';
import { formatUserCode } from '../pages/device.ts';
import { NO_STORE, OauthError, sendOauthError } from './oauth-error.ts';

const LONGEST_DEVICE_CODE = 200;
/**
 * Maximum wait until the policy of every worker contains a new token. Usually this takes a few
 * milliseconds; after a longer wait, the token works a little later. A gateway on another machine
 * receives the token with its next policy, within 5 s.
 */
const TOKEN_IN_POLICY_MS = 2_000;

export function deviceFlowRoutes(
  server: FastifyInstance,
  { config, controlPlane, policy }: Context,
): void {
  const activation = `${config.PUBLIC_URL}/_oauth/device/activate`;

  // Section 3.1. The gateway ignores `client_id`; clients of the contract send no body
  // (docs/interfaces.md "Device flow").
  server.post('/_oauth/device/code', { errorHandler: sendOauthError }, async (request, reply) => {
    const scope = scopeIn(request.body);
    const made = await controlPlane.call('createDeviceCode', {
      body: { address: addressOf(request), user_agent: userAgentOf(request), scope },
    });
    const shown = formatUserCode(made.user_code);
    // Answer with the codes (section 3.2).
    return reply.headers(NO_STORE).send({
      device_code: made.device_code,
      user_code: shown,
      verification_uri: activation,
      verification_uri_complete: `${activation}?${new URLSearchParams({ code: shown }).toString()}`,
      expires_in: made.expires_in,
      interval: made.interval,
    });
  });

  // Section 3.4. The gateway ignores `grant_type` and `client_id` (docs/interfaces.md
  // "Device flow").
  server.post('/_oauth/device/token', { errorHandler: sendOauthError }, async (request, reply) => {
    const polled = await controlPlane.call('pollDeviceCode', {
      body: { device_code: deviceCodeIn(request.body) },
    });
    if (polled.result !== 'issued') throw new OauthError(polled.result);
    const token = polled.access_token;
    if (token === null) throw new Error('the control plane issued no token');
    // A program can use the token immediately, so wait until /verify accepts it.
    await policy.untilTokenKnown(token, TOKEN_IN_POLICY_MS);
    // Answer with the token (RFC 6749 section 5.1).
    const scope = polled.scope ?? policy.view().deviceToken(token)?.scope;
    return reply.headers(NO_STORE).send({
      access_token: token,
      token_type: 'Bearer',
      expires_in: DEVICE_TOKEN_SECONDS,
      ...defined({ scope }),
    });
  });
}

const fieldOf = (body: unknown, name: string): unknown =>
  typeof body === 'object' && body !== null && Object.hasOwn(body, name)
    ? (body as Record<string, unknown>)[name]
    : undefined;

/**
 * Returns the requested scope (RFC 6749 section 3.3: names separated by spaces, in any order). A
 * server can ignore unknown names, such as `openid` of a general client. The answer with the token
 * names the granted scope. Every token has the scope `projects`.
 */
function scopeIn(body: unknown): DeviceScope {
  const text = fieldOf(body, 'scope') ?? '';
  if (typeof text !== 'string' || fieldOf(body, 'scope') === null)
    throw new OauthError('invalid_request', 'scope must be a single string');
  return text.split(' ').includes('api') ? 'projects api' : 'projects';
}

function deviceCodeIn(body: unknown): string {
  const code = fieldOf(body, 'device_code');
  // RFC 6749 section 3.2: a repeated parameter (an array here) is invalid.
  if (typeof code !== 'string' || code === '')
    throw new OauthError('invalid_request', 'device_code is missing or repeated');
  // Device codes are never longer than this.
  if (code.length > LONGEST_DEVICE_CODE) throw new OauthError('invalid_grant');
  return code;
}
