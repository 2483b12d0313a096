/**
 * GET and POST /_oauth/device/activate (RFC 8628 section 3.3): a signed-in person approves or
 * denies a device. A link alone never approves: the person must click on a page that shows the
 * device's request (section 5.4: remote phishing).
 */
import { trimOws } from '@berth/kit/ows';
import { ApiError } from '@berth/wire/client';
import type { DeviceCodeSeen } from '@berth/wire/gateway';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Session } from '../deps.ts';
import { assertPolicyLoaded, type Context } from '../login/context.ts';
import { loginPath, typedCode } from '../login/destination.ts';
import { sendPage } from '../login/reply.ts';
import { REFUSALS, Refusal, type RefusalCode } from '../login/refusal.ts';
import { addressOf, parameter } from '../login/request.ts';
import { activatePage, confirmPage, decidedPage } from '../pages/device.ts';
import { DEVICES_PATH } from './devices.ts';
import { createForms } from './forms.ts';

export const ACTIVATE_PATH = '/_oauth/device/activate';
/** Wrong codes are limited per minute (docs/interfaces.md "Limits"). */
const RETRY_AFTER_SECONDS = '60';

export function activateRoutes(server: FastifyInstance, context: Context): void {
  const { config, controlPlane, sealer, sso } = context;
  const forms = createForms(sealer, config.PUBLIC_URL);

  server.get(ACTIVATE_PATH, async (request, reply) => {
    const code = typedCode(parameter(request.query, 'code'));
    const retryPath = loginPath({ kind: 'activate', code });
    assertPolicyLoaded(context, retryPath);
    const session = sso.read(request.headers.cookie);
    if (session === null) {
      // CSP section 6.4.1: `form-action` also applies to redirects after a form, so a form cannot
      // redirect to the provider's host.
      if (parameter(request.query, 'from') === 'form')
        throw new Refusal('session_ended', { retryPath });
      return reply.redirect(retryPath, 302);
    }
    if (trimOws(code) === '') return sendPage(reply, 200, activatePage(session.identity, null));

    let seen: DeviceCodeSeen;
    try {
      seen = await controlPlane.call('lookupDeviceCode', {
        body: { user_code: code, address: addressOf(request) },
      });
    } catch (error) {
      return notThatCode(error, session, request, reply);
    }
    return sendPage(
      reply,
      200,
      confirmPage({
        identity: session.identity,
        seen,
        csrf: forms.token(session, aboutCode(seen.user_code)),
      }),
    );
  });

  server.post(ACTIVATE_PATH, async (request, reply) => {
    assertPolicyLoaded(context, ACTIVATE_PATH);
    const session = sso.read(request.headers.cookie);
    if (session === null) throw new Refusal('form_expired', { retryPath: ACTIVATE_PATH });
    const code = typedCode(parameter(request.body, 'user_code'));
    const decision = parameter(request.body, 'decision');
    if (code === '' || (decision !== 'approve' && decision !== 'deny'))
      throw new Refusal('bad_form', { retryPath: ACTIVATE_PATH });
    if (!forms.isOwn(session, aboutCode(code), request))
      throw new Refusal('form_expired', { retryPath: loginPath({ kind: 'activate', code }) });

    const approve = decision === 'approve';
    try {
      await controlPlane.call('decideDeviceCode', {
        body: { user_code: code, address: addressOf(request), approve, identity: session.identity },
      });
    } catch (error) {
      return notThatCode(error, session, request, reply);
    }
    request.log.info({ email: session.identity.email, approve }, 'device decided');
    return sendPage(reply, 200, decidedPage(session.identity, approve));
  });

  /**
   * Shows the form again with the problem of the code. Throws errors that are not about the code.
   */
  function notThatCode(
    error: unknown,
    session: Session,
    request: FastifyRequest,
    reply: FastifyReply,
  ): FastifyReply {
    const code = refusalFor(error);
    if (code === null) throw error;
    request.log.info({ code, ip: request.ip }, 'user code refused');
    if (code === 'too_many_codes') void reply.header('retry-after', RETRY_AFTER_SECONDS);
    return sendPage(reply, REFUSALS[code].status, activatePage(session.identity, REFUSALS[code]));
  }
}

const aboutCode = (userCode: string): string => `activate ${userCode}`;

/**
 * Returns null if the error is not about the code. Throws a Refusal if the error is about the
 * person.
 */
function refusalFor(error: unknown): RefusalCode | null {
  if (!(error instanceof ApiError)) return null;
  // These errors are about the person, so they get a page without the form.
  if (error.code === 'account_disabled') throw new Refusal('user_disabled');
  if (error.code === 'too_many_tokens')
    throw new Refusal('too_many_devices', { retryPath: DEVICES_PATH });
  if (error.status >= 500 || error.status === 401 || error.status === 403) return null;
  return error.status === 429 ? 'too_many_codes' : 'user_code_unknown';
}
