/**
 * The HTTP server. /verify is answered before any framework sees the request; everything else is Fastify's. Request logging
 * is off: what matters is counted, and logged where it is decided.
 */
import { randomBytes } from 'node:crypto';
import { createServer } from 'node:http';
import { hstsOf } from '@berth/wire/hsts';
import Fastify, { type FastifyBaseLogger, type FastifyError, type FastifyInstance, type FastifyReply, LogController } from 'fastify';
import type { GatewayDeps } from './deps.ts';
import { jwks } from './keys.ts';
import { isTooLarge, MAX_READ, tooLarge } from './limits.ts';
import type { Metrics } from './metrics.ts';
import type { PolicyFollower } from './policy.ts';
import { PROBLEM_TYPE, problemOf } from './problem.ts';
import type { Verify } from './verify.ts';

export type ServerParts = {
  deps: GatewayDeps;
  policy: PolicyFollower;
  verify: Verify;
  /** Text of /metrics. */
  metrics: Metrics['render'];
};

export function buildServer({ deps, policy, verify, metrics }: ServerParts): FastifyInstance {
  const log: FastifyBaseLogger = deps.log;
  const server = Fastify({
    loggerInstance: log,
    logController: new LogController({ disableRequestLogging: true, requestIdLogLabel: 'request_id' }),
    serverFactory: (handler) =>
      createServer({ maxHeaderSize: MAX_READ, keepAliveTimeout: 95_000, requestTimeout: 60_000 }, (request, response) => {
        if (verify.takes(request.url ?? '')) return verify.handle(request, response);
        if (!isTooLarge(request)) return handler(request, response);
        const { status, headers, body } = tooLarge();
        response.writeHead(status, headers).end(body);
      }),
    bodyLimit: 64 * 1024,
    // Limits and the consent page use the client's address, so only named proxies may say what it is.
    trustProxy: [...deps.config.TRUSTED_PROXIES],
    requestIdHeader: false,
    // What an error page names: the same in no two processes, and short enough to read out.
    genReqId: () => randomBytes(6).toString('hex'),
    return503OnClosing: false,
    // What goes wrong before a route is found: a path that cannot be decoded.
    frameworkErrors: (error, _request, reply) => void badRequest(error, reply),
    routerOptions: { maxParamLength: 200 },
  });

  server.setErrorHandler<FastifyError>((error, request, reply) => {
    const status = error.statusCode ?? 500;
    if (status >= 400 && status < 500)
      return reply
        .code(status)
        .type(PROBLEM_TYPE)
        .send({ ...problemOf('bad_request', error.message), status });
    request.log.error({ err: error }, 'a request failed');
    // In doubt 503: nothing here is beyond trying again.
    return reply
      .code(503)
      .header('retry-after', '5')
      .type(PROBLEM_TYPE)
      .send({ ...problemOf('internal', 'it was logged'), status: 503 });
  });
  server.setNotFoundHandler((_request, reply) =>
    reply.code(404).type(PROBLEM_TYPE).send(problemOf('not_found', 'there is nothing at this path')),
  );
  server.addHook('preClose', async () => verify.drain());
  const hsts = hstsOf(deps.config.PUBLIC_URL);
  server.addHook('onSend', async (_request, reply) => {
    if (hsts !== null) void reply.header('strict-transport-security', hsts);
    void reply.header('x-content-type-options', 'nosniff').header('x-frame-options', 'DENY').header('referrer-policy', 'no-referrer');
    if (!reply.hasHeader('cache-control')) void reply.header('cache-control', 'no-store');
  });

  server.get('/healthz', async () => ({ status: 'ok' }));
  server.get('/readyz', async (_request, reply) => {
    const readiness = readinessOf(policy);
    return reply.code(readiness.status === 'ready' ? 200 : 503).send(readiness);
  });
  server.get('/metrics', async (_request, reply) => {
    const { type, text } = await metrics();
    return reply.type(type).send(text);
  });
  const keys = jwks(deps.keys);
  // Short: after a rotation the new key must be found before an assertion under it is refused.
  server.get('/_oauth/jwks.json', (_request, reply) =>
    reply.header('cache-control', 'public, max-age=60').header('access-control-allow-origin', '*').send(keys),
  );
  return server;
}

const badRequest = (error: FastifyError, reply: FastifyReply): FastifyReply =>
  reply.code(400).type(PROBLEM_TYPE).send(problemOf('bad_request', error.message));

function readinessOf(policy: PolicyFollower): {
  status: string;
  reasons: string[];
  policy_age_seconds: number | null;
  control_plane: string;
} {
  const ageMs = policy.ageMs();
  const { known } = policy.view();
  const reasons = known ? [] : ['no policy was ever had: the control plane has not answered yet'];
  return {
    status: known ? 'ready' : 'not ready',
    reasons,
    policy_age_seconds: ageMs === null ? null : Math.round(ageMs / 1000),
    control_plane: policy.trouble() ?? 'answers',
  };
}
