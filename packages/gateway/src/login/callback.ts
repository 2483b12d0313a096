/**
 * GET /_oauth/callback/{provider}: handles a browser that returns from the provider.
 * ../oidc/callback-checks.ts lists the checks.
 */
import { randomBytes } from 'node:crypto';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { defined } from '@berth/kit/defined';
import type { Session } from '../deps.ts';
import { CALLBACK_CHECKS, type CallbackState, required } from '../oidc/callback-checks.ts';
import { ProviderUnavailable } from '../oidc/fetch.ts';
import type { Context } from './context.ts';
import { arrivalOf, retryPathOf } from './destination.ts';
import { Refusal } from './refusal.ts';
import { addressOf, parameter, userAgentOf } from './request.ts';

export function callbackRoutes(server: FastifyInstance, context: Context): void {
  const { attempts, codes, config, now, redirects, reports, sso } = context;

  server.get<{ Params: { provider: string } }>(
    '/_oauth/callback/:provider',
    async (request, reply) => {
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
        // The provider has answered the attempt, so it cannot be used again.
        if (state.attempt !== null)
          void reply.header('set-cookie', attempts.drop(state.attempt.state));
        reportRefusal(request, state, refusal);
        throw refusal;
      }

      const attempt = required(state.attempt);
      const identity = required(state.identity);
      const earlier = sso.read(request.headers.cookie);
      const session: Session = {
        // A second tab joins the session of the first one, so that one logout ends both. A session
        // of another person is not revoked, because otherwise a planted attempt could sign that
        // person out everywhere.
        id:
          earlier?.identity.email === identity.email
            ? earlier.id
            : randomBytes(18).toString('base64url'),
        identity,
        begun_at: now(),
        expires_at: now() + config.SESSION_TTL,
      };
      reports.send({
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
          sso.setSession(session),
          ...(sso.requiresAccountChoice(request.headers.cookie) ? [sso.clearAccountChoice()] : []),
        ])
        .redirect(arrivalOf(attempt.destination, session, redirects, codes), 302);
    },
  );

  function refusalOf(error: unknown, state: CallbackState): Refusal {
    const retryPath = retryPathFor(state);
    if (error instanceof Refusal)
      return new Refusal(error.code, {
        retryPath,
        ...defined({ detail: error.detail ?? undefined }),
        cause: error.cause,
      });
    if (error instanceof ProviderUnavailable)
      return new Refusal('provider_unavailable', {
        retryPath,
        detail: error.message,
        cause: error,
      });
    return new Refusal('internal', { retryPath, cause: error });
  }

  function retryPathFor({ attempt, query }: CallbackState): string {
    const destination = attempt?.destination ?? attempts.hint(parameter(query, 'state') ?? '');
    return destination === null ? '/_oauth/login' : retryPathOf(destination, redirects);
  }

  function reportRefusal(request: FastifyRequest, state: CallbackState, refusal: Refusal): void {
    // Without an attempt this is not a sign-in. Anybody can open the address, so the audit log gets
    // no report.
    if (state.attempt === null) return;
    reports.send({
      outcome: 'refused',
      email: state.identity?.email ?? null,
      provider: state.attempt.provider,
      address: addressOf(request),
      user_agent: userAgentOf(request),
      reason: refusal.code,
    });
  }
}
