/**
 * The HTTP server. It answers /verify without Fastify, for speed; Fastify handles everything else.
 * Request logging is off, because metrics count requests and each decision writes its own log line.
 */
import { randomBytes } from 'node:crypto';
import { createServer, type Server } from 'node:http';
import type { Connections } from '@berth/kit/connections';
import { MAX_HEADERS_READ } from '@berth/kit/header-size';
import { hstsOf } from '@berth/wire/hsts';
import Fastify, {
  type FastifyBaseLogger,
  type FastifyError,
  type FastifyInstance,
  type FastifyReply,
  LogController,
} from 'fastify';
import { preflightAnswer } from './cors.ts';
import type { GatewayDeps } from './deps.ts';
import { jwks } from './keys.ts';
import { isTooLarge, tooLarge } from './limits.ts';
import type { Metrics } from './metrics.ts';
import type { PolicyFollower } from './policy.ts';
import { PAGE_HEADERS } from './pages/layout.ts';
import { scaledToZeroPage, stoppedPage } from './pages/stopped.ts';
import { PROBLEM_TYPE, problemOf } from './problem.ts';
import type { Verify } from './verify.ts';

export type ServerParts = {
  connections: (server: Server) => Connections;
  deps: GatewayDeps;
  policy: PolicyFollower;
  verify: Verify;
  /** Renders the text of /metrics. */
  metrics: Metrics['render'];
};

export function buildServer({
  deps,
  policy,
  verify,
  metrics,
  connections: limit,
}: ServerParts): FastifyInstance {
  const log: FastifyBaseLogger = deps.log;
  const platform = {
    baseDomain: deps.config.BASE_DOMAIN,
    authHost: new URL(deps.config.PUBLIC_URL).hostname,
  };
  const server = Fastify({
    loggerInstance: log,
    logController: new LogController({
      disableRequestLogging: true,
      requestIdLogLabel: 'request_id',
    }),
    serverFactory(handler) {
      const server = createServer(
        { maxHeaderSize: MAX_HEADERS_READ, keepAliveTimeout: 95_000, requestTimeout: 60_000 },
        (request, response) => {
          connections.requested(request.socket, response);
          if (verify.takes(request.url ?? '')) return verify.handle(request, response);
          const answer = isTooLarge(request)
            ? tooLarge(request)
            : preflightAnswer(request, policy.view(), platform);
          if (answer === null) return handler(request, response);
          const { status, headers, body } = answer;
          response.writeHead(status, headers).end(body);
        },
      );
      const connections = limit(server);
      return server;
    },
    bodyLimit: 64 * 1024,
    // Limits and the consent page use the client's address, so only trusted proxies can set it.
    trustProxy: [...deps.config.TRUSTED_PROXIES],
    requestIdHeader: false,
    // Error pages show this id: it is unique across processes and short enough to read aloud.
    genReqId: () => randomBytes(6).toString('hex'),
    return503OnClosing: false,
    // Answers errors that occur before a route is found, such as a path that cannot be decoded.
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
    request.log.error({ err: error }, 'request failed');
    // Answer 503 and not 500, because clients can retry every request here.
    return reply
      .code(503)
      .header('retry-after', '5')
      .type(PROBLEM_TYPE)
      .send({
        ...problemOf('internal', 'the gateway logged the error; try again later'),
        status: 503,
      });
  });
  server.setNotFoundHandler((_request, reply) =>
    reply.code(404).type(PROBLEM_TYPE).send(problemOf('not_found', 'no page exists at this path')),
  );
  server.addHook('preClose', async () => verify.drain());
  const hsts = hstsOf(deps.config.PUBLIC_URL);
  server.addHook('onSend', async (request, reply) => {
    // Leave /stopped out, because the proxy shows that page at the host of the stopped project.
    if (hsts !== null && request.url.split('?')[0] !== '/stopped')
      void reply.header('strict-transport-security', hsts);
    void reply
      .header('x-content-type-options', 'nosniff')
      .header('x-frame-options', 'DENY')
      .header('referrer-policy', 'no-referrer');
    if (!reply.hasHeader('cache-control')) void reply.header('cache-control', 'no-store');
  });

  server.get<{ Querystring: { zero?: string } }>('/stopped', ({ query }, reply) =>
    reply
      .code(503)
      .headers(PAGE_HEADERS)
      .send(query.zero === undefined ? stoppedPage() : scaledToZeroPage()),
  );
  server.get('/healthz', async () => ({ status: 'ok' }));
  server.get('/readyz', async (_request, reply) => {
    const readiness = readinessOf(policy);
    return reply.code(readiness.status === 'ready' ? 200 : 503).send(readiness);
  });
  server.get('/metrics', async (_request, reply) => {
    const { type, text } = await metrics();
    return reply.type(type).send(text);
  });
  // A short max-age, so that applications find a new key soon after a rotation.
  server.get('/_oauth/jwks.json', (_request, reply) =>
    reply
      .header('cache-control', 'public, max-age=60')
      .header('access-control-allow-origin', '*')
      .send(jwks(deps.keys)),
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
  const { loaded } = policy.view();
  const reasons = loaded
    ? []
    : ['no policy: the control plane has not answered yet, and no policy is stored on disk'];
  return {
    status: loaded ? 'ready' : 'not ready',
    reasons,
    policy_age_seconds: ageMs === null ? null : Math.round(ageMs / 1000),
    control_plane: policy.lastError() ?? 'answers',
  };
}
