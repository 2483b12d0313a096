/**
 * Builds the HTTP server, which does not listen yet. Adds the hooks, then the routes, and checks
 * that no route is missing.
 */
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import type { Connections } from '@berth/kit/connections';
import { defined } from '@berth/kit/defined';
import type { Logger } from '@berth/kit/log';
import type { Tracing } from '@berth/kit/spans';
import { hstsOf } from '@berth/wire/hsts';
import Fastify, { type FastifyBaseLogger, LogController } from 'fastify';
import type { AuditStore, IdempotencyAnswerStore } from '../domain/identity/identity-stores.ts';
import type { Presence } from '../domain/identity/presence.ts';
import { DomainError } from '../domain/platform/errors.ts';
import type { Telemetry } from '../domain/platform/telemetry.ts';
import { createAudit } from './audit.ts';
import { type Beats, createBeats } from './beats.ts';
import type { SecretUse } from './auth/secret-use.ts';
import { createDefine, type Server } from './define.ts';
import { createHttpServer } from './http-server.ts';
import { createRunOnce } from './idempotency.ts';
import type { Holds } from './long-poll.ts';
import { createMetrics, type MetricDeps, type Metrics } from './metrics.ts';
import { openapiDocument } from './openapi/document.ts';
import { installAccess } from './plugins/access.ts';
import { installBodies } from './plugins/bodies.ts';
import { installDashboardFiles, readDashboard } from './plugins/dashboard.ts';
import { answer, installErrors } from './plugins/errors.ts';
import { installErrorsPage } from './plugins/errors-page.ts';
import { installDocsPage } from './plugins/openapi.ts';
import { installRequestLog, RequestLog, requestId } from './plugins/request-log.ts';
import type { RightsStores } from './rights.ts';
import { createRouteParts, type Deps as PartsDeps, type RouteParts } from './route-parts.ts';
import type { ApiSettings } from './settings.ts';
import { createStaticAnswer, type StaticAnswer } from './static-answer.ts';
import { type RequestTraces, traceDeployments, traceRequests } from './traces.ts';
import { compileValidator } from './validation.ts';
import { type RouteDeps, wireRoutes } from './wire-routes.ts';

const MIB = 1_048_576;
/** At shutdown, time for the first request of a new connection, which might be on its way. */
const UNUSED_MS = 1_000;

/** Parts that the server creates for its routes. */
type Made = RouteParts & Pick<RouteDeps, 'beats' | 'meters' | 'openapi'>;
export type ServerDeps = Omit<RouteDeps, keyof Made> &
  PartsDeps &
  Omit<MetricDeps, keyof RouteParts | 'connections'> &
  RightsStores & {
    idempotencyAnswers: IdempotencyAnswerStore;
    audit: AuditStore;
    presence: Presence;
    secretUse: Pick<SecretUse, 'gatewaySent'>;
    telemetry: Telemetry;
    settings: Pick<
      ApiSettings,
      'dashboardDir' | 'jwtSecrets' | 'maxConnections' | 'publicUrl' | 'trustedProxies'
    >;
    /** Null if tracing is off. */
    tracing: Tracing | null;
    log: Logger;
  };

export async function buildServer(deps: ServerDeps): Promise<Server> {
  const { settings, log } = deps;
  /** Assigned below, because the logger of each request needs it. */
  const traces: { requests: RequestTraces | null } = { requests: null };
  const beats = createBeats(deps);
  const { server, connections } = createFastify(settings, log, beats, traces);
  const parts = createRouteParts(deps);
  const { holds, readers, callers, cookies, agents } = parts;
  const meters = createMetrics({ ...deps, ...parts, connections });

  server.setValidatorCompiler(compileValidator);
  // Do not serialize by schema, which would silently remove unknown fields. The tests check answers
  // against the route table.
  server.setSerializerCompiler(() => (data) => JSON.stringify(data));
  if (deps.tracing !== null) {
    traces.requests = traceRequests(server, deps.tracing, holds);
    traceDeployments(deps.telemetry, deps.tracing);
  }
  installRequestLog(server);
  installErrors(server, readDashboard(settings.dashboardDir));
  installBodies(server);
  server.addHook('onRequest', (_request, _reply, done) =>
    done(holds.closed() ? new DomainError('shutting_down') : undefined),
  );
  installAccess(server, callers, agents, { ...deps, cookies, vouch: connections.vouch });
  installHeaders(server, hstsOf(settings.publicUrl));
  measureRequests(server, meters, holds);
  // End held requests and streams first, because the server waits for all running requests.
  server.addHook('preClose', async () => {
    holds.closeAll();
    parts.execSessions.close();
    setTimeout(() => connections.closeUnused(), UNUSED_MS).unref();
  });
  server.addHook('onClose', () => readers.close());

  const define = createDefine({
    server,
    audit: createAudit(deps.audit, deps.now),
    stores: deps,
    callers,
    cookies,
    runOnce: createRunOnce({
      idempotencyAnswers: deps.idempotencyAnswers,
      secrets: settings.jwtSecrets,
      now: deps.now,
    }),
  });
  const { document, json } = documentOf(settings.publicUrl);
  installErrorsPage(server);
  await installDocsPage(server, document, json);
  await installDashboardFiles(server, settings.dashboardDir);
  wireRoutes(define.route, { ...deps, ...parts, beats, meters, openapi: json });
  define.assertComplete();
  return server;
}

function createFastify(
  { maxConnections: max, trustedProxies: trusted }: ServerDeps['settings'],
  log: Logger,
  beats: Beats,
  traces: { requests: RequestTraces | null },
): { server: Server; connections: Connections } {
  let connections: Connections | undefined;
  const logger: FastifyBaseLogger = log;
  const server: Server = Fastify({
    loggerInstance: logger,
    logController: new LogController({
      disableRequestLogging: true,
      requestIdLogLabel: 'request_id',
    }),
    serverFactory(handle) {
      const created = createHttpServer(handle, beats, { max, trusted, log });
      connections = created.connections;
      return created.server;
    },
    bodyLimit: MIB,
    trustProxy: [...trusted],
    genReqId: requestId,
    childLoggerFactory: (logger, bindings, options, request) =>
      new RequestLog(log.level, () =>
        logger.child(
          { ...bindings, ...defined({ trace_id: traces.requests?.traceIdOf(request) }) },
          options,
        ),
      ),
    requestIdHeader: false,
    // Disabled, because a hook answers with a problem document instead.
    return503OnClosing: false,
    frameworkErrors: (error, request, reply) => void answer(error, request, reply),
    // answerBrokenRequests handles client errors, because it knows whether an answer is being sent
    // on the connection.
    clientErrorHandler: () => {},
    routerOptions: { maxParamLength: 300 },
  }).withTypeProvider<TypeBoxTypeProvider>();
  if (connections === undefined) throw new Error('Fastify created no server');
  return { server, connections };
}

function installHeaders(server: Server, hsts: string | null): void {
  server.addHook('onSend', (_request, reply, _payload, done) => {
    if (hsts !== null) void reply.header('strict-transport-security', hsts);
    void reply
      .header('x-content-type-options', 'nosniff')
      .header('x-frame-options', 'DENY')
      .header('referrer-policy', 'no-referrer');
    // A project's page that opens the dashboard in a window gets no handle to the window.
    void reply.header('cross-origin-opener-policy', 'same-origin');
    if (!reply.hasHeader('cache-control')) void reply.header('cache-control', 'no-store');
    done();
  });
}

function measureRequests(
  server: Server,
  meters: Pick<Metrics, 'observe'>,
  holds: Pick<Holds, 'wasHeld'>,
): void {
  server.addHook('onResponse', (request, reply, done) => {
    meters.observe({
      route: request.routeOptions.config.routeName ?? 'none',
      method: request.method,
      status: reply.statusCode,
      seconds: reply.elapsedTime / 1000,
      held: holds.wasHeld(reply.raw),
    });
    done();
  });
}

/** Cache of the last document. A process serves one address, but tests start many servers. */
let latest: {
  publicUrl: string;
  document: ReturnType<typeof openapiDocument>;
  json: StaticAnswer;
} | null = null;

function documentOf(publicUrl: string): NonNullable<typeof latest> {
  if (latest?.publicUrl === publicUrl) return latest;
  const document = openapiDocument(publicUrl);
  latest = {
    publicUrl,
    document,
    json: createStaticAnswer('application/json; charset=utf-8', () => JSON.stringify(document)),
  };
  return latest;
}
