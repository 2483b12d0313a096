/**
 * GET and POST /_oauth/device/activate (RFC 8628 section 3.3): a signed-in person decides about a device, always by a click of
 * their own on a page that shows what asks (section 5.4: remote phishing), never by having followed a link.
 */
import { ApiError } from '@berth/wire/client';
import type { DeviceCodeSeen } from '@berth/wire/gateway';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Session } from '../deps.ts';
import { assertPolicyKnown, type Context } from '../login/context.ts';
import { loginPath, typedCode } from '../login/destination.ts';
import { sendPage } from '../login/reply.ts';
import { REFUSALS, Refusal, type RefusalCode } from '../login/refusal.ts';
import { addressOf, parameter } from '../login/request.ts';
import { activatePage, confirmPage, decidedPage } from '../pages/device.ts';
import { DEVICES_PATH } from './devices.ts';
import { createForms } from './forms.ts';

export const ACTIVATE_PATH = '/_oauth/device/activate';
/** Wrong codes are counted by the minute (INTERFACES). */
const RETRY_AFTER_SECONDS = '60';

export function activateRoutes(server: FastifyInstance, context: Context): void {
  const { config, controlPlane, sealer, sso } = context;
  const forms = createForms(sealer, config.PUBLIC_URL);

  server.get(ACTIVATE_PATH, async (request, reply) => {
    const code = typedCode(parameter(request.query, 'code'));
    const again = loginPath({ kind: 'activate', code });
    assertPolicyKnown(context, again);
    const session = sso.read(request.headers.cookie);
    if (session === null) {
      // CSP, section 6.4.1: `form-action` holds for where a form is redirected to as well, and the provider is elsewhere.
      if (parameter(request.query, 'from') === 'form') throw new Refusal('session_ended', { again });
      return reply.redirect(again, 302);
    }
    if (code.trim() === '') return sendPage(reply, 200, activatePage(session.identity, null));

    let seen: DeviceCodeSeen;
    try {
      seen = await controlPlane.call('lookupDeviceCode', { body: { user_code: code, address: addressOf(request) } });
    } catch (error) {
      return notThatCode(error, session, request, reply);
    }
    return sendPage(reply, 200, confirmPage({ identity: session.identity, seen, csrf: forms.token(session, aboutCode(seen.user_code)) }));
  });

  server.post(ACTIVATE_PATH, async (request, reply) => {
    assertPolicyKnown(context, ACTIVATE_PATH);
    const session = sso.read(request.headers.cookie);
    if (session === null) throw new Refusal('form_expired', { again: ACTIVATE_PATH });
    const code = typedCode(parameter(request.body, 'user_code'));
    const decision = parameter(request.body, 'decision');
    if (code === '' || (decision !== 'approve' && decision !== 'deny')) throw new Refusal('bad_form', { again: ACTIVATE_PATH });
    if (!forms.isOwn(session, aboutCode(code), request))
      throw new Refusal('form_expired', { again: loginPath({ kind: 'activate', code }) });

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

  /** The form once more, with what was wrong; what is no matter of the code goes on as it came. */
  function notThatCode(error: unknown, session: Session, request: FastifyRequest, reply: FastifyReply): FastifyReply {
    const code = refusalFor(error);
    if (code === null) throw error;
    request.log.info({ code, ip: request.ip }, 'user code refused');
    if (code === 'too_many_codes') void reply.header('retry-after', RETRY_AFTER_SECONDS);
    return sendPage(reply, REFUSALS[code].status, activatePage(session.identity, REFUSALS[code]));
  }
}

const aboutCode = (userCode: string): string => `activate ${userCode}`;

/** null: not about the code. Throws a Refusal that is about the person. */
function refusalFor(error: unknown): RefusalCode | null {
  if (!(error instanceof ApiError)) return null;
  // About who decides, not about the code: a page of its own, without the form.
  if (error.code === 'account_disabled') throw new Refusal('user_disabled');
  if (error.code === 'too_many_tokens') throw new Refusal('too_many_devices', { again: DEVICES_PATH });
  if (error.status >= 500 || error.status === 401 || error.status === 403) return null;
  return error.status === 429 ? 'too_many_codes' : 'user_code_unknown';
}
