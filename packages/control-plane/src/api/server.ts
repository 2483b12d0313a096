/** The HTTP server with everything on it; it does not listen. Order: guards, then routes by the table, then the check that none is missing. */
import { createServer, type IncomingMessage, type Server as HttpServer, type ServerResponse } from 'node:http';
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import { MAX_HOLD_SECONDS } from '@berth/wire/route';
import { hstsOf } from '@berth/wire/hsts';
import { ROUTES } from '@berth/wire/routes';
import Fastify, { type FastifyBaseLogger, LogController } from 'fastify';
import { DomainError } from '../domain/errors.ts';
import { createAgents } from './agents.ts';
import { createAssertions } from './auth/assertions.ts';
import { createAttempts } from './auth/attempts.ts';
import { createAudit } from './audit.ts';
import { createCallers } from './auth/callers.ts';
import { createDefine, type Server } from './define.ts';
import type { ApiDeps } from './deps.ts';
import { createHolds } from './holds.ts';
import { createOnce } from './idempotency.ts';
import { createMetrics } from './metrics.ts';
import { createNodeNews } from './node-news.ts';
import { createPasswords } from './auth/passwords.ts';
import { installAccess } from './plugins/access.ts';
import { installBodies } from './plugins/bodies.ts';
import { installErrorsPage } from './plugins/errors-page.ts';
import { answer, installErrors } from './plugins/errors.ts';
import { answerBrokenRequests } from './plugins/broken-requests.ts';
import { installDocsPage } from './plugins/openapi.ts';
import { openapiDocument } from './openapi/document.ts';
import { installRequestLog, RequestLog, requestId } from './plugins/request-log.ts';
import { agentDatasetRoutes } from './routes/agent-datasets.ts';
import { createNodeEngines } from './node-engines.ts';
import { createNodeSettings } from './node-settings.ts';
import { agentRoutes } from './routes/agent.ts';
import { auditRoutes } from './routes/audit.ts';
import { authRoutes } from './routes/auth.ts';
import { datasetRoutes } from './routes/datasets.ts';
import { deploymentRoutes } from './routes/deployments.ts';
import { eventRoutes } from './routes/events.ts';
import { gatewayRoutes } from './routes/gateway.ts';
import { logRoutes } from './routes/logs.ts';
import { joiningRoutes } from './routes/joining.ts';
import { nodeRoutes } from './routes/nodes.ts';
import { placementRoutes } from './routes/placement.ts';
import { projectRoutes } from './routes/projects.ts';
import { systemRoutes } from './routes/system.ts';
import { apiTokenRoutes } from './routes/tokens.ts';
import { traefikRoutes } from './routes/traefik.ts';
import { userRoutes } from './routes/users.ts';
import { createSignIns } from './auth/sign-ins.ts';
import { createTogether } from './together.ts';
import { createTokens } from './auth/tokens.ts';
import { compileValidator } from './validation.ts';

const MIB = 1_048_576;
/** 128 KiB of headers (docs/interfaces.md "Limits"), and the request line. */
const MAX_HEADER_BYTES = 144 * 1024;
/** TCP's own probes; an agent's side sends them after as long. */
const PROBE_AFTER_MS = 60_000;
/** Wrong secrets of agents from one network. */
const AGENT_SECRETS_A_MINUTE = 100;
/** From one network: whoever starts a sign-in on a device needs one, and another when it ran out. */
const DEVICE_CODES_A_MINUTE = 30;
/** Wrong ones from one network, whatever the accounts: an office signs in, a guesser tries the same password everywhere. */
const SIGN_INS_A_MINUTE = 60;

const guards = (now: () => number) => ({ attempts: createAttempts(now), strangers: createAttempts(now, SIGN_INS_A_MINUTE) });

/** Fastify's own server, but that registers are worked in together. */
function createHttpServer(handle: (request: IncomingMessage, response: ServerResponse) => void): HttpServer {
  const together = createTogether();
  const options = {
    maxHeaderSize: MAX_HEADER_BYTES,
    // Probed while it is silent: a connection whose agent is gone does not hold a request until its end.
    keepAlive: true,
    keepAliveInitialDelay: PROBE_AFTER_MS,
    keepAliveTimeout: 95_000,
    // How long a request may take to arrive. The answer may be held much longer.
    requestTimeout: 60_000,
    // Checked by plugins/broken-requests.ts, which answers with a problem document.
    requireHostHeader: false,
  };
  const server = createServer(options, (request, response) => {
    if (request.url === ROUTES.agentRegister.path) together(() => handle(request, response));
    else handle(request, response);
  });
  answerBrokenRequests(server);
  // Silence on a connection, both ways: longer than any hold and than Traefik's idle connections are kept (90 s).
  return server.setTimeout((MAX_HOLD_SECONDS + 30) * 1000);
}

export async function buildServer(deps: ApiDeps): Promise<Server> {
  const log: FastifyBaseLogger = deps.log;
  const server: Server = Fastify({
    loggerInstance: log,
    logController: new LogController({ disableRequestLogging: true, requestIdLogLabel: 'request_id' }),
    serverFactory: createHttpServer,
    bodyLimit: MIB,
    trustProxy: [...deps.settings.trustedProxies],
    genReqId: requestId,
    childLoggerFactory: (logger, bindings, options) => new RequestLog(log.level, () => logger.child(bindings, options)),
    requestIdHeader: false,
    // Said by our own hook, as a problem like any other.
    return503OnClosing: false,
    frameworkErrors: (error, request, reply) => void answer(error, request, reply),
    // Set by answerBrokenRequests, which also knows what is being answered on the connection.
    clientErrorHandler: () => {},
    routerOptions: { maxParamLength: 300 },
  }).withTypeProvider<TypeBoxTypeProvider>();

  const holds = createHolds();
  const news = createNodeNews(deps.stores.audit, deps.log, deps.now);
  const metrics = createMetrics({ ...deps, news }, holds);
  const tokens = createTokens(deps.settings.jwtSecrets, deps.now);
  const callers = createCallers({ ...deps, ...deps.settings, tokens });
  const agents = createAgents({ ...deps, ...deps.settings, guesses: createAttempts(deps.now, AGENT_SECRETS_A_MINUTE) });
  const signIns = createSignIns({ ...deps, tokens, ended: () => deps.changes.notify('access') });
  const passwords = createPasswords(deps.settings.passwordCost);

  server.setValidatorCompiler(compileValidator);
  // Answers are made by views.ts and checked against the table by the tests; at run time nothing is cut away silently.
  server.setSerializerCompiler(() => (data) => JSON.stringify(data));
  installRequestLog(server);
  installErrors(server);
  installBodies(server);
  server.addHook('onRequest', (_request, _reply, done) => done(holds.closed() ? new DomainError('shutting_down') : undefined));
  installAccess(server, callers, agents, deps.presence);
  const hsts = hstsOf(deps.settings.publicUrl);
  server.addHook('onSend', (_request, reply, _payload, done) => {
    if (hsts !== null) void reply.header('strict-transport-security', hsts);
    void reply.header('x-content-type-options', 'nosniff').header('x-frame-options', 'DENY').header('referrer-policy', 'no-referrer');
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
  // Held requests and streams end first: the server waits for every request that is under way.
  server.addHook('preClose', async () => holds.closeAll());

  const once = createOnce({ keptAnswers: deps.stores.keptAnswers, secrets: deps.settings.jwtSecrets, now: deps.now });
  const define = createDefine(server, createAudit(deps.stores.audit, deps.now), deps.stores, once);
  const document = openapiDocument(deps.settings.publicUrl);
  installErrorsPage(server);
  await installDocsPage(server, document);
  const { route } = define;
  authRoutes(route, { ...deps, signIns, passwords, assertions: createAssertions({ ...deps, ...deps.settings }), ...guards(deps.now) });
  userRoutes(route, { ...deps, passwords });
  apiTokenRoutes(route, deps);
  auditRoutes(route, deps);
  projectRoutes(route, deps);
  datasetRoutes(route, deps);
  deploymentRoutes(route, { ...deps, holds, callers });
  eventRoutes(route, { ...deps, holds, callers });
  logRoutes(route, { ...deps, holds, callers });
  nodeRoutes(route, { ...deps, news });
  joiningRoutes(route, deps);
  placementRoutes(route, deps);
  const clock = { now: deps.now, offlineMs: deps.limits.offlineMs };
  const nodeNotes = [createNodeSettings(clock), createNodeEngines(clock)];
  agentRoutes(route, { ...deps, holds, agents, news, nodeNotes });
  agentDatasetRoutes(route, { ...deps, agents });
  gatewayRoutes(route, { ...deps, holds, guesses: createAttempts(deps.now), asks: createAttempts(deps.now, DEVICE_CODES_A_MINUTE) });
  traefikRoutes(route, { ...deps, holds });
  systemRoutes(route, { ...deps, metrics, holds, nodeNotes, openapi: document });
  define.assertComplete();
  return server;
}
