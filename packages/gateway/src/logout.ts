/**
 * GET and POST /_oauth/logout: ends the session everywhere, including its cookies at every project.
 * The contract requires GET, so any page can sign a visitor out (logout CSRF). This is accepted: it
 * only costs a new sign-in.
 */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Context } from './login/context.ts';
import { sendPage } from './login/reply.ts';
import { addressOf, parameter, userAgentOf } from './login/request.ts';
import { signedOutPage } from './pages/sign-in.ts';
import { audienceOf } from './userinfo.ts';

export function logoutRoutes(server: FastifyInstance, context: Context): void {
  const { attempts, config, policy, providers, redirects, reports, sso } = context;

  /** Returns the provider with which the person signed in, or null if nobody was signed in. */
  async function endSessions(request: FastifyRequest, reply: FastifyReply): Promise<string | null> {
    // Remove the cookies first, so that this browser loses them even if a later step fails.
    const sessions = sso.readAll(
      request.headers.cookie,
      audienceOf(request, config, policy.view()),
    );
    const choice = sessions.length === 0 ? [] : [sso.requireAccountChoice()];
    void reply.header('set-cookie', [
      sso.clearSession(),
      ...choice,
      ...attempts.dropAll(request.headers.cookie),
    ]);
    for (const session of sessions) {
      await policy.revokeSession(session);
      request.log.info({ email: session.identity.email }, 'signed out');
      reports.send({
        outcome: 'signed_out',
        email: session.identity.email,
        provider: session.identity.provider,
        address: addressOf(request),
        user_agent: userAgentOf(request),
        reason: null,
      });
    }
    return sessions[0]?.identity.provider ?? null;
  }

  server.get('/_oauth/logout', async (request, reply) => {
    await endSessions(request, reply);
    return reply.redirect(redirects.target(parameter(request.query, 'redirect')), 302);
  });

  // Serves the sign-out button of the gateway's own pages.
  server.post('/_oauth/logout', async (request, reply) => {
    const provider = await endSessions(request, reply);
    const query = provider === null ? '' : `?${new URLSearchParams({ provider }).toString()}`;
    return reply.redirect(`/_oauth/signed-out${query}`, 303);
  });

  // The page shows a link to the provider instead of redirecting, because `form-action` of our
  // pages allows only this host.
  server.get('/_oauth/signed-out', async (request, reply) => {
    const provider = providers.get(parameter(request.query, 'provider') ?? '');
    const url = await provider?.signOutUrl(`${config.PUBLIC_URL}/_oauth/signed-out`);
    return sendPage(
      reply,
      200,
      signedOutPage(
        provider === undefined || !url ? null : { label: provider.label, href: url.href },
      ),
    );
  });
}
