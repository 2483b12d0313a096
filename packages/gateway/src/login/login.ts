/**
 * GET /_oauth/login: starts a login, or redirects immediately if the person is already signed in
 * (single sign-on).
 */
import type { FastifyInstance } from 'fastify';
import { hasTooMany } from '../cookies.ts';
import type { Provider } from '../oidc/provider.ts';
import { choicePage, lostFormPage } from '../pages/sign-in.ts';
import { assertPolicyLoaded, type Context } from './context.ts';
import {
  arrivalOf,
  type Destination,
  destinationOf,
  loginPath,
  retryPathOf,
} from './destination.ts';
import { sendPage } from './reply.ts';
import { Refusal } from './refusal.ts';
import { parameter } from './request.ts';

export function loginRoutes(server: FastifyInstance, context: Context): void {
  const { redirects, codes, sso, providers, attempts, config } = context;

  server.get('/_oauth/login', async (request, reply) => {
    const destination = destinationOf(request.query, redirects);
    assertPolicyLoaded(context, loginPath(destination));
    // Check this first: a person with a session would be redirected back at once and would believe
    // that the form was sent.
    if (parameter(request.query, 'lost') === 'form')
      return sendPage(reply, 200, lostFormPage(loginPath(destination)));

    const session = sso.read(request.headers.cookie);
    if (session !== null)
      return reply.redirect(arrivalOf(destination, session, redirects, codes), 302);
    // Refuse, because otherwise the browser would be redirected here after every sign-in,
    // endlessly.
    if (hasTooMany(request.headers.cookie))
      throw new Refusal('too_many_cookies', { retryPath: retryPathOf(destination, redirects) });

    const provider = chosen(parameter(request.query, 'provider'), destination);
    if (provider === null) return sendPage(reply, 200, choicePage(choices(destination)));

    const { attempt, setCookies } = attempts.begin(
      request.headers.cookie,
      provider.id,
      destination,
    );
    const fresh = sso.requiresAccountChoice(request.headers.cookie);
    const url = await provider
      .authorizationUrl(attempt, callbackUrl(config.PUBLIC_URL, provider.id), fresh)
      .catch((error: unknown) => {
        throw new Refusal('provider_unavailable', {
          retryPath: loginPath(destination, provider.id),
          detail: String(error),
          cause: error,
        });
      });
    return reply.header('set-cookie', setCookies).redirect(url.href, 302);
  });

  /** Returns null if there are several providers and the person must choose. */
  function chosen(name: string | undefined, destination: Destination): Provider | null {
    if (name !== undefined) {
      const provider = providers.get(name);
      if (provider === undefined)
        throw new Refusal('provider_unknown', { retryPath: loginPath(destination) });
      return provider;
    }
    const [first, ...others] = providers.values();
    if (first === undefined) throw new Refusal('no_provider');
    return others.length === 0 ? first : null;
  }

  function choices(destination: Destination): Parameters<typeof choicePage>[0] {
    return {
      host: destination.kind === 'target' ? redirects.otherHost(destination.target) : null,
      providers: [...providers.values()].map(({ id, label }) => ({
        label,
        href: loginPath(destination, id),
      })),
    };
  }
}

/**
 * RFC 9700 section 4.4.2.2: each provider has its own redirect URI, so that it cannot answer for
 * another provider.
 */
export const callbackUrl = (publicUrl: string, provider: string): string =>
  `${publicUrl}/_oauth/callback/${provider}`;
