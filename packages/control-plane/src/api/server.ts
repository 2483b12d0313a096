/**
 * Builds the HTTP server, which does not listen yet. Adds the hooks, then the routes, and checks
 * that no route is missing.
 */
import { cookieRemedy, headersSize, MAX_HEADERS_READ } from '@berth/kit/header-size';
import {
  createServer,
  type IncomingMessage,
  type Server as HttpServer,
  type ServerResponse,
} from 'node:http';
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import { type ConnectionOptions, type Connections, limitConnections } from '@berth/kit/connections';
import { MAX_HOLD_SECONDS } from '@berth/wire/route';
import { hstsOf } from '@berth/wire/hsts';
import { ROUTES } from '@berth/wire/routes';
import Fastify, { type FastifyBaseLogger, LogController } from 'fastify';
import { DomainError } from '../domain/platform/errors.ts';
import { createAgents } from './agents.ts';
import { createAssertions } from './auth/assertions.ts';
import { createAttempts } from './auth/attempts.ts';
import { createAudit } from './audit.ts';
import { createCallers } from './auth/callers.ts';
import { createDefine, type Server } from './define.ts';
import type { ApiDeps } from './deps.ts';
import { createBatcher } from './batcher.ts';
import { createHolds } from './long-poll.ts';
import { createRunOnce } from './idempotency.ts';
import { createMetrics } from './metrics.ts';
import { createNodeChangeLog } from './node-changes.ts';
import { createSessionCookies } from './auth/session-cookie.ts';
import { createPasswords } from './auth/passwords.ts';
import { installAccess } from './plugins/access.ts';
import { installBodies } from './plugins/bodies.ts';
import { installDashboardFiles, readDashboard } from './plugins/dashboard.ts';
import { installErrorsPage } from './plugins/errors-page.ts';
import { answer, installErrors } from './plugins/errors.ts';
import { answerBrokenRequests, refuseHeaders } from './plugins/broken-requests.ts';
import { installDocsPage } from './plugins/openapi.ts';
import { openapiDocument } from './openapi/document.ts';
import { installRequestLog, RequestLog, requestId } from './plugins/request-log.ts';
import { agentDatasetRoutes } from './routes/agent-datasets.ts';
import { agentVolumeRoutes } from './routes/agent-volumes.ts';
import { createNodeEngines } from './node-engines.ts';
import { createNodePorts } from './node-ports.ts';
import { createQuarantine } from './node-quarantine.ts';
import { createNodeSettings } from './node-settings.ts';
import { createNodeVersions } from './node-versions.ts';
import { agentRoutes } from './routes/agent.ts';
import { auditRoutes } from './routes/audit.ts';
import { cleanUpRoutes } from './routes/clean-ups.ts';
import { authRoutes } from './routes/auth.ts';
import { datasetRoutes } from './routes/datasets.ts';
import { deploymentRoutes } from './routes/deployments.ts';
import { eventRoutes } from './routes/events.ts';
import { hookRoutes } from './routes/hooks.ts';
import { notificationRoutes } from './routes/notifications.ts';
import { gatewayRoutes } from './routes/gateway.ts';
import { gitRoutes } from './routes/git.ts';
import { logRoutes } from './routes/logs.ts';
import { joiningRoutes } from './routes/joining.ts';
import { metricRoutes } from './routes/metrics.ts';
import { nodeRoutes } from './routes/nodes.ts';
import { placementRoutes } from './routes/placement.ts';
import { domainRoutes } from './routes/domains.ts';
import { projectRoutes } from './routes/projects.ts';
import { repositoryLookRoutes } from './routes/repository-looks.ts';
import { runtimeLogRoutes } from './routes/runtime-logs.ts';
import { secretRoutes } from './routes/secrets.ts';
import { createStaticAnswer, type StaticAnswer } from './static-answer.ts';
import { systemRoutes } from './routes/system.ts';
import { apiTokenRoutes } from './routes/tokens.ts';
import { traefikRoutes } from './routes/traefik.ts';
import { userRoutes } from './routes/users.ts';
import { createReaders } from './runtime-logs/readers.ts';
import { volumeRoutes } from './routes/volumes.ts';
import { createSignIns } from './auth/sign-ins.ts';
import { createTokens } from './auth/tokens.ts';
import { type RequestTraces, traceDeployments, traceRequests } from './traces.ts';
import { compileValidator } from './validation.ts';

const MIB = 1_048_576;
/** 128 KiB of headers (docs/interfaces.md "Limits"), and the request line. */
const MAX_HEADER_BYTES = 144 * 1024;
/**
 * Idle time of a connection before TCP keep-alive probes. Agents use the same time on their side.
 */
const PROBE_AFTER_MS = 60_000;
/** At the end, time for the first request of a connection, which may be on its way. */
const UNUSED_MS = 1_000;
/** Wrong agent secrets from one network. */
const AGENT_SECRETS_A_MINUTE = 100;
/** Device codes for one network. Each sign-in on a device needs one, and another if it expires. */
const DEVICE_CODES_A_MINUTE = 30;
/** Refused deliveries of hooks from one network. */
const REFUSED_DELIVERIES_A_MINUTE = 60;
/** Tests of notifications by one person, and to one recipient. */
const NOTIFICATION_TESTS_A_MINUTE = 10;
/**
 * Failed sign-ins from one network over all accounts. High enough for an office, too low to try one
 * password at every account.
 */
const SIGN_INS_A_MINUTE = 60;

const guards = (now: () => number) => ({
  attempts: createAttempts(now),
  strangers: createAttempts(now, SIGN_INS_A_MINUTE),
});

/**
 * Creates the HTTP server that Fastify would create, except that registrations are batched and
 * connections are limited.
 */
function createHttpServer(
  handle: (request: IncomingMessage, response: ServerResponse) => void,
  limits: Omit<ConnectionOptions, 'now'>,
): { server: HttpServer; connections: Connections } {
  const inBatch = createBatcher();
  const options = {
    maxHeaderSize: MAX_HEADERS_READ,
    // TCP keep-alive finds connections of dead agents, whose held requests would otherwise stay
    // open until `wait` ends.
    keepAlive: true,
    keepAliveInitialDelay: PROBE_AFTER_MS,
    keepAliveTimeout: 95_000,
    // Time limit for receiving a request. Its answer may be held much longer.
    requestTimeout: 60_000,
    // plugins/errors.ts checks the Host header and answers with a problem document.
    requireHostHeader: false,
  };
  const server = createServer(options, (request, response) => {
    connections.requested(request.socket, response);
    if (headersSize(request) > MAX_HEADER_BYTES)
      refuseHeaders(response, cookieRemedy(request, MAX_HEADER_BYTES));
    else if (request.url === ROUTES.agentRegister.path) inBatch(() => handle(request, response));
    else handle(request, response);
  });
  const connections = limitConnections(server, limits);
  answerBrokenRequests(server);
  // Idle timeout of a connection. It is longer than any hold and than Traefik's idle timeout (90
  // s).
  server.setTimeout((MAX_HOLD_SECONDS + 30) * 1000);
  return { server, connections };
}

export async function buildServer(deps: ApiDeps): Promise<Server> {
  const log: FastifyBaseLogger = deps.log;
  let limited: Connections | null = null;
  let traces: RequestTraces | null = null;
  const server: Server = Fastify({
    loggerInstance: log,
    logController: new LogController({
      disableRequestLogging: true,
      requestIdLogLabel: 'request_id',
    }),
    serverFactory(handle) {
      const { maxConnections: max, trustedProxies: trusted } = deps.settings;
      const created = createHttpServer(handle, { max, trusted, log: deps.log });
      limited = created.connections;
      return created.server;
    },
    bodyLimit: MIB,
    trustProxy: [...deps.settings.trustedProxies],
    genReqId: requestId,
    childLoggerFactory: (logger, bindings, options, request) =>
      new RequestLog(log.level, () =>
        logger.child(
          traces === null ? bindings : { ...bindings, trace_id: traces.traceIdOf(request) },
          options,
        ),
      ),
    requestIdHeader: false,
    // The hook below answers with a problem document instead.
    return503OnClosing: false,
    frameworkErrors: (error, request, reply) => void answer(error, request, reply),
    // answerBrokenRequests handles client errors. It knows whether an answer is being sent on the
    // connection.
    clientErrorHandler: () => {},
    routerOptions: { maxParamLength: 300 },
  }).withTypeProvider<TypeBoxTypeProvider>();

  const connections = limited as Connections | null;
  if (connections === null) throw new Error('Fastify created no server');
  const holds = createHolds();
  const nodeChanges = createNodeChangeLog(deps.stores.audit, deps.log, deps.now);
  const readers = createReaders(deps);
  const metrics = createMetrics({ ...deps, nodeChanges, connections, readers }, holds);
  const tokens = createTokens(deps.settings.jwtSecrets, deps.now);
  const callers = createCallers({ ...deps, ...deps.settings, tokens });
  const cookies = createSessionCookies(deps.settings.publicUrl);
  const agents = createAgents({
    ...deps,
    ...deps.settings,
    guesses: createAttempts(deps.now, AGENT_SECRETS_A_MINUTE),
  });
  const signIns = createSignIns({
    ...deps,
    tokens,
    onSessionEnded: () => deps.changes.notify('access'),
  });
  const passwords = createPasswords(deps.settings.passwordCost);

  server.setValidatorCompiler(compileValidator);
  // No serialization by schema: it would silently remove unknown fields. The tests check answers
  // against the route table.
  server.setSerializerCompiler(() => (data) => JSON.stringify(data));
  if (deps.tracing !== null) {
    traces = traceRequests(server, deps.tracing, holds);
    traceDeployments(deps.telemetry, deps.tracing);
  }
  installRequestLog(server);
  installErrors(server, readDashboard(deps.settings.dashboardDir));
  installBodies(server);
  server.addHook('onRequest', (_request, _reply, done) =>
    done(holds.closed() ? new DomainError('shutting_down') : undefined),
  );
  installAccess(server, callers, agents, { ...deps, cookies, vouch: connections.vouch });
  const hsts = hstsOf(deps.settings.publicUrl);
  server.addHook('onSend', (_request, reply, _payload, done) => {
    if (hsts !== null) void reply.header('strict-transport-security', hsts);
    void reply
      .header('x-content-type-options', 'nosniff')
      .header('x-frame-options', 'DENY')
      .header('referrer-policy', 'no-referrer');
    // A page of a project that opens the dashboard in a window gets no handle to it.
    void reply.header('cross-origin-opener-policy', 'same-origin');
    if (!reply.hasHeader('cache-control')) void reply.header('cache-control', 'no-store');
    done();
  });
  server.addHook('onResponse', (request, reply, done) => {
    const route = request.routeOptions.config.routeName ?? 'none';
    metrics.observe({
      route,
      method: request.method,
      status: reply.statusCode,
      seconds: reply.elapsedTime / 1000,
      held: holds.wasHeld(reply.raw),
    });
    done();
  });
  // End held requests and streams first, because the server waits for all running requests.
  server.addHook('preClose', async () => {
    holds.closeAll();
    setTimeout(() => connections.closeUnused(), UNUSED_MS).unref();
  });

  const runOnce = createRunOnce({
    idempotencyAnswers: deps.stores.idempotencyAnswers,
    secrets: deps.settings.jwtSecrets,
    now: deps.now,
  });
  const define = createDefine(server, createAudit(deps.stores.audit, deps.now), {
    stores: deps.stores,
    callers,
    cookies,
    runOnce,
  });
  const { document, json } = documentOf(deps.settings.publicUrl);
  installErrorsPage(server);
  await installDocsPage(server, document, json);
  await installDashboardFiles(server, deps.settings.dashboardDir);
  const { route } = define;
  authRoutes(route, {
    ...deps,
    cookies,
    signIns,
    passwords,
    assertions: createAssertions({ ...deps, ...deps.settings }),
    ...guards(deps.now),
  });
  userRoutes(route, { ...deps, passwords });
  apiTokenRoutes(route, deps);
  auditRoutes(route, deps);
  cleanUpRoutes(route, deps);
  repositoryLookRoutes(route, { ...deps, holds });
  projectRoutes(route, deps);
  domainRoutes(route, deps);
  secretRoutes(route, deps);
  datasetRoutes(route, deps);
  deploymentRoutes(route, { ...deps, holds });
  notificationRoutes(route, {
    ...deps,
    tests: createAttempts(deps.now, NOTIFICATION_TESTS_A_MINUTE),
  });
  hookRoutes(route, { ...deps, refusals: createAttempts(deps.now, REFUSED_DELIVERIES_A_MINUTE) });
  eventRoutes(route, { ...deps, holds });
  logRoutes(route, { ...deps, holds });
  server.addHook('onClose', () => readers.close());
  runtimeLogRoutes(route, { ...deps, holds, agents, readers });
  nodeRoutes(route, { ...deps, nodeChanges });
  joiningRoutes(route, deps);
  gitRoutes(route, { ...deps, agents });
  placementRoutes(route, deps);
  const clock = { now: deps.now, offlineMs: deps.limits.offlineMs };
  const nodeNotes = [
    createNodeSettings(clock),
    createNodeEngines(clock),
    createNodePorts(clock),
    createNodeVersions(clock),
  ];
  const quarantine = createQuarantine(clock);
  agentRoutes(route, { ...deps, holds, agents, nodeChanges, nodeNotes, quarantine, readers });
  agentDatasetRoutes(route, { ...deps, agents });
  volumeRoutes(route, deps);
  agentVolumeRoutes(route, { ...deps, agents, holds });
  metricRoutes(route, { ...deps, agents });
  gatewayRoutes(route, {
    ...deps,
    holds,
    guesses: createAttempts(deps.now),
    codeRequests: createAttempts(deps.now, DEVICE_CODES_A_MINUTE),
  });
  traefikRoutes(route, { ...deps, holds });
  systemRoutes(route, {
    ...deps,
    metrics,
    holds,
    nodeNotes: [...nodeNotes, quarantine],
    openapi: json,
  });
  define.assertComplete();
  return server;
}

/** The last document. A process serves one address, but tests start many servers. */
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
