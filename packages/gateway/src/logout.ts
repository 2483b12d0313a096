/**
 * GET and POST /_oauth/logout: ends the session everywhere, its cookies at every project too.
 * The contract has GET, so any page can sign a visitor out (logout CSRF); nothing but a new sign-in is lost by it, and it is accepted.
 */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Context } from './login/context.ts';
import { sendPage } from './login/reply.ts';
import { addressOf, parameter, userAgentOf } from './login/request.ts';
import { signedOutPage } from './pages/sign-in.ts';
import { audienceOf } from './userinfo.ts';

export function logoutRoutes(server: FastifyInstance, context: Context): void {
  const { attempts, config, policy, redirects, reports, sso } = context;

  async function endSessions(request: FastifyRequest, reply: FastifyReply): Promise<void> {
    // First, so that it is gone from this browser whatever happens next.
    void reply.header('set-cookie', [sso.forget(), ...attempts.dropAll(request.headers.cookie)]);
    for (const session of sso.readAll(request.headers.cookie, audienceOf(request, config, policy.view()))) {
      await policy.revokeSession(session);
      request.log.info({ email: session.identity.email }, 'signed out');
      reports.tell({
        outcome: 'signed_out',
        email: session.identity.email,
        provider: session.identity.provider,
        address: addressOf(request),
        user_agent: userAgentOf(request),
        reason: null,
      });
    }
  }

  server.get('/_oauth/logout', async (request, reply) => {
    await endSessions(request, reply);
    return reply.redirect(redirects.target(parameter(request.query, 'redirect')), 302);
  });

  // The button of our own pages.
  server.post('/_oauth/logout', async (request, reply) => {
    await endSessions(request, reply);
    return reply.redirect('/_oauth/signed-out', 303);
  });

  server.get('/_oauth/signed-out', (_request, reply) => sendPage(reply, 200, signedOutPage()));
}
