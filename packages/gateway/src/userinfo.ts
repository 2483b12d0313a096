/**
 * GET /_oauth/userinfo: the visitor's identity, for the JavaScript of a project (docs/contract.md
 * "Userinfo record").
 */
import { defined } from '@berth/kit/defined';
import type { Identity } from '@berth/wire/gateway';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { deviceTokenIn, MAX_TOKEN } from './bearer.ts';
import type { Config } from './config.ts';
import type { Audience, PolicyView } from './deps.ts';
import type { Context } from './login/context.ts';
import { siteAt } from './site.ts';

const PROBLEM_TYPE = 'application/problem+json; charset=utf-8';
const PREFLIGHT_SECONDS = '600';

export function userinfoRoutes(server: FastifyInstance, context: Context): void {
  const { config, now, policy, sso } = context;

  server.get('/_oauth/userinfo', (request, reply) => {
    const view = policy.view();
    allowOrigin(request, reply, config, view);
    void reply.headers({ 'cache-control': 'no-store', 'x-content-type-options': 'nosniff' });
    if (!view.loaded) {
      void reply.header('retry-after', '5');
      return problem(
        reply,
        request,
        503,
        'policy_unknown',
        'The gateway has just started and has not loaded its policy yet; try again',
      );
    }
    const bearer = deviceTokenIn(request.headers.authorization);
    const identity =
      bearer === null
        ? sso.read(request.headers.cookie, audienceOf(request, config, view))?.identity
        : byToken(bearer, view);
    if (identity !== undefined)
      return reply.send({
        email: identity.email,
        name: identity.name,
        avatar_url: identity.avatar_url,
        provider: identity.provider,
      });
    // RFC 6750 section 3: an invalid token is an error, even if the request also has a valid
    // cookie.
    void reply.header(
      'www-authenticate',
      bearer === null ? 'Bearer' : 'Bearer error="invalid_token"',
    );
    return problem(
      reply,
      request,
      401,
      'unauthenticated',
      'Authentication is required; sign in first',
    );
  });

  /**
   * Answers a preflight request (Fetch section 3.2), which has no credentials and gets no identity.
   */
  server.options('/_oauth/userinfo', (request, reply) => {
    if (!allowOrigin(request, reply, config, policy.view()))
      return problem(
        reply,
        request,
        403,
        'forbidden',
        'This origin is not a project of this platform that requires a login',
      );
    return reply
      .headers({
        'access-control-allow-methods': 'GET',
        'access-control-allow-headers': 'Accept, Authorization, Content-Type',
        'access-control-max-age': PREFLIGHT_SECONDS,
      })
      .code(204)
      .send();
  });

  function byToken(token: string, view: PolicyView): Identity | undefined {
    const deviceToken = token.length > MAX_TOKEN ? undefined : view.deviceToken(token);
    if (
      deviceToken === undefined ||
      Date.parse(deviceToken.expires_at) <= now() ||
      view.isDisabled(deviceToken.identity.email)
    )
      return undefined;
    policy.tokenUsed(deviceToken.id);
    return deviceToken.identity;
  }

  function problem(
    reply: FastifyReply,
    request: FastifyRequest,
    status: number,
    code: string,
    title: string,
  ): FastifyReply {
    return reply
      .code(status)
      .type(PROBLEM_TYPE)
      .send({
        type: `urn:berth:error:${code}`,
        title,
        status,
        detail:
          status === 401 ? 'there is no valid session or device token in this request' : title,
        code,
        ...defined({ login_url: status === 401 ? `${config.PUBLIC_URL}/_oauth/login` : undefined }),
        request_id: request.id,
      });
  }
}

/** Returns the audience of the session cookie that a browser sends to the requested host. */
export function audienceOf(request: FastifyRequest, config: Config, view: PolicyView): Audience {
  const host = (request.headers.host ?? '').replace(/:\d+$/, '').toLowerCase();
  const authHost = new URL(config.PUBLIC_URL).hostname;
  if (host === '' || host === authHost) return 'sso';
  return (
    siteAt(host, view, { baseDomain: config.BASE_DOMAIN, authHost })?.audience ?? `host:${host}`
  );
}

/**
 * Allows exactly the gateway's own origin and the origins of projects that require a login
 * (docs/interfaces.md "Userinfo"). A public project must not learn the identity of its visitors.
 * The answer never allows `*`, because the request has credentials.
 */
function allowOrigin(
  request: FastifyRequest,
  reply: FastifyReply,
  config: Config,
  view: PolicyView,
): boolean {
  void reply.header('vary', 'Origin');
  const { origin } = request.headers;
  if (origin === undefined || !URL.canParse(origin)) return false;
  const [caller, base] = [new URL(origin), new URL(config.PUBLIC_URL)];
  if (caller.origin !== origin || caller.protocol !== base.protocol || caller.port !== base.port)
    return false;
  if (caller.hostname !== base.hostname) {
    const site = siteAt(caller.hostname, view, {
      baseDomain: config.BASE_DOMAIN,
      authHost: base.hostname,
    });
    // The policy of an older control plane does not contain `auth_required`.
    if (site === undefined || site.project.auth_required === false) return false;
  }
  void reply.headers({
    'access-control-allow-origin': origin,
    'access-control-allow-credentials': 'true',
  });
  return true;
}
