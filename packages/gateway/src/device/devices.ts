/** GET and POST /_oauth/devices: lists and revokes a person's device tokens. */
import { ApiError } from '@berth/wire/client';
import type { FastifyInstance } from 'fastify';
import { assertPolicyLoaded, type Context } from '../login/context.ts';
import { loginPath } from '../login/destination.ts';
import { sendPage } from '../login/reply.ts';
import { Refusal } from '../login/refusal.ts';
import { parameter } from '../login/request.ts';
import { devicesPage } from '../pages/device.ts';
import { createForms } from './forms.ts';

export const DEVICES_PATH = '/_oauth/devices';
/** All forms of the page share one token. */
const ABOUT = 'devices';

export function devicesRoutes(server: FastifyInstance, context: Context): void {
  const { config, controlPlane, sealer, sso } = context;
  const forms = createForms(sealer, config.PUBLIC_URL);

  server.get(DEVICES_PATH, async (request, reply) => {
    assertPolicyLoaded(context, DEVICES_PATH);
    const session = sso.read(request.headers.cookie);
    if (session === null) return reply.redirect(loginPath({ kind: 'devices' }), 302);
    const { identity } = session;
    const { items } = await controlPlane.call('deviceTokensOf', {
      body: { email: identity.email },
    });
    return sendPage(
      reply,
      200,
      devicesPage({ identity, tokens: items, csrf: forms.token(session, ABOUT) }),
    );
  });

  server.post(DEVICES_PATH, async (request, reply) => {
    assertPolicyLoaded(context, DEVICES_PATH);
    const session = sso.read(request.headers.cookie);
    if (session === null || !forms.isOwn(session, ABOUT, request))
      throw new Refusal('form_expired', { retryPath: DEVICES_PATH });
    const id = parameter(request.body, 'id');
    if (id === undefined || !/^[\w-]{1,64}$/.test(id))
      throw new Refusal('bad_form', { retryPath: DEVICES_PATH });
    await controlPlane
      .call('revokeDeviceTokenOf', { body: { id, email: session.identity.email } })
      .catch((error: unknown) => {
        // The token is already gone or belongs to another person. The list that follows shows the
        // person's own tokens.
        if (!(error instanceof ApiError && error.status === 404)) throw error;
      });
    request.log.info(
      { email: session.identity.email, device_token: id },
      'device token revoked by its owner',
    );
    return reply.redirect(DEVICES_PATH, 303);
  });
}
