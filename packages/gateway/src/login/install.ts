/**
 * Installs all endpoints for people and devices: login, pages, device flow, userinfo, logout,
 * metadata.
 */
import { cutText } from '@berth/kit/cut-text';
import { ApiError, UnreachableError } from '@berth/wire/client';
import type { LoginSeen } from '@berth/wire/gateway';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { MIN_SECRET_LENGTH } from '../config.ts';
import type { GatewayDeps } from '../deps.ts';
import { activateRoutes } from '../device/activate.ts';
import { devicesRoutes } from '../device/devices.ts';
import { deviceFlowRoutes } from '../device/flow.ts';
import { homeRoutes } from '../home.ts';
import { logoutRoutes } from '../logout.ts';
import { metadataRoutes } from '../metadata.ts';
import { createProviders, type ProviderOverrides } from '../oidc/providers.ts';
import { refusalPage } from '../pages/problem.ts';
import { userinfoRoutes } from '../userinfo.ts';
import { createAttempts } from './attempts.ts';
import { callbackRoutes } from './callback.ts';
import type { Context } from './context.ts';
import { loginRoutes } from './login.ts';
import { sendPage } from './reply.ts';
import { createReports } from './report.ts';
import { MAX_PARAMETERS, parseForm } from './form.ts';
import { REFUSALS, Refusal, type RefusalCode } from './refusal.ts';
import { createSso } from './sso.ts';

/** Maximum size of a body in bytes. All forms and device requests are smaller. */
const BODY_LIMIT = 16_384;

type Parts = {
  overrides?: ProviderOverrides | undefined;
  loginSeen?: (login: LoginSeen) => void;
  refused?: (code: RefusalCode) => void;
};

export async function installLogin(
  server: FastifyInstance,
  deps: GatewayDeps,
  { overrides = {}, loginSeen, refused = () => undefined }: Parts = {},
): Promise<void> {
  const reports = createReports(deps.controlPlane, deps.log, loginSeen);
  const context: Context = {
    ...deps,
    reports,
    providers: createProviders(deps, overrides),
    attempts: createAttempts(deps.sealer, deps.config.PUBLIC_URL.startsWith('https:'), deps.now),
    sso: createSso(deps),
  };
  if (deps.config.ALLOWED_EMAILS === undefined)
    deps.log.warn(
      'ALLOWED_EMAILS is not set: everybody whom the identity provider lets in may sign in',
    );
  if (deps.config.GATEWAY_SECRET.some((secret) => secret.length < MIN_SECRET_LENGTH))
    deps.log.warn(
      `GATEWAY_SECRET contains a secret shorter than ${MIN_SECRET_LENGTH} characters; create ` +
        'one with openssl rand -hex 32',
    );
  if (context.providers.size === 0)
    deps.log.warn('no identity provider is configured: nobody can sign in');

  await server.register(async (scope) => {
    acceptBodies(scope);
    scope.addHook('onRoute', (route) => {
      route.bodyLimit = BODY_LIMIT;
    });
    scope.setErrorHandler<Error & { statusCode?: number }>((error, request, reply) => {
      const refusal = translate(error);
      refused(refusal.code);
      return sendRefusal(refusal, error, request, reply);
    });
    loginRoutes(scope, context);
    callbackRoutes(scope, context);
    logoutRoutes(scope, context);
    userinfoRoutes(scope, context);
    metadataRoutes(scope, context);
    deviceFlowRoutes(scope, context);
    activateRoutes(scope, context);
    devicesRoutes(scope, context);
    homeRoutes(scope, context);
    scope.addHook('onClose', () => reports.close());
  });
}

/**
 * Accepts forms (RFC 8628 section 3.1) and JSON (the contract). A body of another type counts as
 * empty, and the endpoint reports the missing parameters.
 */
function acceptBodies(scope: FastifyInstance): void {
  scope.removeAllContentTypeParsers();
  const parseJson = scope.getDefaultJsonParser('error', 'error');
  scope.addContentTypeParser('application/json', { parseAs: 'string' }, (request, body, done) => {
    if (body === '') done(null, undefined);
    else void parseJson(request, String(body), done);
  });
  scope.addContentTypeParser(
    'application/x-www-form-urlencoded',
    { parseAs: 'string' },
    (_request, body, done) => {
      const values = parseForm(String(body));
      if (values === null)
        done(
          Object.assign(new Error(`the form has more than ${MAX_PARAMETERS} parameters`), {
            statusCode: 400,
          }),
        );
      else done(null, values);
    },
  );
  scope.addContentTypeParser('*', { parseAs: 'string' }, (_request, _body, done) =>
    done(null, undefined),
  );
}

/**
 * Answers every error of a page with an error page. Unexpected errors are logged, and the page
 * shows no details of them.
 */
function sendRefusal(
  refusal: Refusal,
  error: Error,
  request: FastifyRequest,
  reply: FastifyReply,
): FastifyReply {
  const { status } = REFUSALS[refusal.code];
  if (refusal.code === 'internal') request.log.error({ err: error }, 'request failed');
  else
    request.log[status === 503 ? 'warn' : 'info'](
      { code: refusal.code, detail: refusal.detail, path: pathOf(request) },
      'refused',
    );
  if (status === 503) void reply.header('retry-after', '5');
  if (refusal.code === 'too_many_cookies') void reply.header('clear-site-data', '"cookies"');
  return sendPage(reply, status, refusalPage(refusal.code, request.id, refusal.retryPath));
}

function translate(error: Error & { statusCode?: number }): Refusal {
  if (error instanceof Refusal) return error;
  if (error instanceof UnreachableError || error instanceof ApiError)
    return new Refusal('control_plane_unavailable', {
      detail: error instanceof ApiError ? `${error.status} ${error.code}` : error.message,
      cause: error,
    });
  if (error.statusCode === 413) return new Refusal('form_too_large');
  if (error.statusCode !== undefined && error.statusCode < 500) return new Refusal('bad_form');
  return new Refusal('internal', { cause: error });
}

/** Returns the path without the query, because the query contains codes and states. */
const pathOf = (request: FastifyRequest): string =>
  cutText(request.url.split('?', 1)[0] ?? '', 300);
