/** GET /_oauth/callback/{provider}: the browser comes back from the provider. The checks stand in ../oidc/callback-checks.ts, in their order. */
import { randomBytes } from 'node:crypto';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { Session } from '../deps.ts';
import { CALLBACK_CHECKS, type CallbackState, held } from '../oidc/callback-checks.ts';
import { ProviderUnavailable } from '../oidc/fetch.ts';
import type { Context } from './context.ts';
import { againPath, arrivalOf } from './destination.ts';
import { Refusal } from './refusal.ts';
import { addressOf, parameter, userAgentOf } from './request.ts';

export function callbackRoutes(server: FastifyInstance, context: Context): void {
  const { attempts, codes, config, now, redirects, reports, sso } = context;

  server.get<{ Params: { provider: string } }>('/_oauth/callback/:provider', async (request, reply) => {
    const state: CallbackState = {
      context,
      url: new URL(request.url, config.PUBLIC_URL),
      query: request.query,
      providerId: request.params.provider,
      cookieHeader: request.headers.cookie,
      provider: null,
      attempt: null,
      claimed: null,
      identity: null,
    };
    try {
      for (const check of CALLBACK_CHECKS) await check(state);
    } catch (error) {
      const refusal = refusalOf(error, state);
      // Whatever went wrong, the attempt was answered: it is worth nothing any more.
      if (state.attempt !== null) void reply.header('set-cookie', attempts.drop(state.attempt.state));
      tellRefused(request, state, refusal);
      throw refusal;
    }

    const attempt = held(state.attempt);
    const identity = held(state.identity);
    const earlier = sso.read(request.headers.cookie);
    const session: Session = {
      // A second tab that finishes its login joins the session of the first, so that one logout ends both. Another person's session is
      // not revoked: a planted attempt could otherwise sign the owner out everywhere.
      id: earlier?.identity.email === identity.email ? earlier.id : randomBytes(18).toString('base64url'),
      identity,
      begun_at: now(),
      expires_at: now() + config.SESSION_TTL,
    };
    reports.tell({
      outcome: 'signed_in',
      email: identity.email,
      provider: identity.provider,
      address: addressOf(request),
      user_agent: userAgentOf(request),
      reason: null,
    });
    request.log.info({ provider: identity.provider, email: identity.email }, 'signed in');
    return reply
      .header('set-cookie', [
        attempts.drop(attempt.state),
        sso.keep(session),
        ...(sso.asksAgain(request.headers.cookie) ? [sso.askNoMore()] : []),
      ])
      .redirect(arrivalOf(attempt.destination, session, redirects, codes), 302);
  });

  function refusalOf(error: unknown, state: CallbackState): Refusal {
    const again = againOf(state);
    if (error instanceof Refusal)
      return new Refusal(error.code, { again, ...(error.detail === null ? {} : { detail: error.detail }), cause: error.cause });
    if (error instanceof ProviderUnavailable) return new Refusal('provider_unavailable', { again, detail: error.message, cause: error });
    return new Refusal('internal', { again, cause: error });
  }

  function againOf({ attempt, query }: CallbackState): string {
    const destination = attempt?.destination ?? attempts.hint(parameter(query, 'state') ?? '');
    return destination === null ? '/_oauth/login' : againPath(destination);
  }

  function tellRefused(request: FastifyRequest, state: CallbackState, refusal: Refusal): void {
    // An address that anybody can type is no sign-in: it is not worth a line in the audit log.
    if (state.attempt === null) return;
    reports.tell({
      outcome: 'refused',
      email: state.identity?.email ?? null,
      provider: state.attempt.provider,
      address: addressOf(request),
      user_agent: userAgentOf(request),
      reason: refusal.code,
    });
  }
}
