/**
 * Defines each route from its row in wire/routes.ts, which has method, path, schemas and required
 * credentials. The handler adds the behaviour. `assertComplete` checks that every row has a
 * handler. A route without a row is refused.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { defined } from '@berth/kit/defined';
import type { ErrorCode } from '@berth/wire/errors';
import { pathOf } from '@berth/wire/client';
import type { Route, Who } from '@berth/wire/route';
import {
  type AnswerOf,
  type BodyOf,
  type ParamsOf,
  type QueryOf,
  ROUTES,
  type RouteName,
} from '@berth/wire/routes';
import type { Role } from '@berth/wire/vocabulary';
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import type {
  FastifyBaseLogger,
  FastifyInstance,
  FastifyReply,
  FastifyRequest,
  RawServerDefault,
} from 'fastify';
import type { AgentProof } from '../domain/nodes/agent-identity.ts';
import type { ProjectAccess } from '../domain/identity/access.ts';
import { type Audit, type Audited, whenAudited } from './audit.ts';
import type { Caller, Callers } from './auth/callers.ts';
import type { SessionCookies } from './auth/session-cookie.ts';
import { hasId, locationOf } from './location.ts';
import { type CreatedAnswer, keyOf, type RunOnce } from './idempotency.ts';
import { installRawBodies } from './plugins/raw-bodies.ts';
import { bodyProblem, refuseNul, SCHEMAS } from './request-checks.ts';
import { checkReplay, type CheckRights, rightsOn, type RightsStores } from './rights.ts';
import { isRole, takesIdempotencyKey } from './route-rules.ts';
import { wantsEventStream } from './sse.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /** The caller; plugins/access.ts sets it on every route that requires a role. */
    caller: Caller | null;
    /** The agent's proof; plugins/access.ts sets it on every route for agents. */
    agent: AgentProof | null;
    /** Details that the audit hook cannot know; null if there are none. */
    audited: Audited | null;
    /** The value of GATEWAY_SECRET that the gateway sent. */
    gatewaySecret: string | null;
    /** Problem code in the answer; null if the answer is no problem. */
    problemCode: ErrorCode | null;
  }
  interface FastifyContextConfig {
    routeName?: RouteName;
  }
}

export type Server = FastifyInstance<
  RawServerDefault,
  IncomingMessage,
  ServerResponse,
  FastifyBaseLogger,
  TypeBoxTypeProvider
>;

type WhoOf<N extends RouteName> = (typeof ROUTES)[N]['who'];
/** `T` if the row has the flag, else undefined. */
type Flagged<N extends RouteName, F extends 'etag' | 'locked' | 'streams', T> =
  (typeof ROUTES)[N] extends Record<F, true> ? T : undefined;
/** Sets the ETag of the answer. */
export type SetEtag = (etag: string) => void;
export type Call<N extends RouteName> = {
  params: ParamsOf<N>;
  query: QueryOf<N>;
  body: BodyOf<N>;
  /**
   * The caller with their role in the project of the request (rights.ts); null on routes without a
   * role.
   */
  user: WhoOf<N> extends Exclude<Who, Role> ? null : Caller;
  /**
   * Checks credentials and rights again, and returns the caller as stored now. Call it before a
   * held request answers and before a stream sends more. Throws if the rights have ended.
   */
  recheck: WhoOf<N> extends Exclude<Who, Role> ? null : () => Promise<Caller>;
  /** The projects that the answer can name. */
  access: (typeof ROUTES)[N]['scope'] extends 'list' ? ProjectAccess : undefined;
  /** Must be called once if the row has `etag`. */
  setEtag: Flagged<N, 'etag', SetEtag>;
  /** The If-Match header. */
  ifMatch: Flagged<N, 'locked', string | undefined>;
  /** True if the caller prefers the stream. */
  stream: Flagged<N, 'streams', boolean>;
  request: FastifyRequest;
  reply: FastifyReply;
};
type Answer<N extends RouteName> = AnswerOf<N> extends undefined ? unknown : AnswerOf<N>;
/**
 * Returned by a handler that has sent the answer itself: a stream, 304, exact bytes. Handlers never
 * return `reply`: it is a thenable, so the caller's `await` would block until the stream ends.
 */
export const SENT = Symbol('sent');
export type Answered<N extends RouteName> = Promise<Answer<N> | typeof SENT>;
export type Handler<N extends RouteName> = (call: Call<N>) => Answered<N>;
export type Define = <N extends RouteName>(
  name: N,
  handler: Handler<N>,
  options?: { bodyLimit?: number },
) => void;

/**
 * Size limit in bytes of a body on public routes. E-mail addresses, passwords and tokens are far
 * smaller.
 */
const PUBLIC_BODY_LIMIT = 8_192;

export type Deps = {
  server: Server;
  audit: Audit;
  stores: RightsStores;
  callers: Pick<Callers, 'user'>;
  cookies: Pick<SessionCookies, 'callerOf'>;
  runOnce: RunOnce;
};

export function createDefine(deps: Deps): { route: Define; assertComplete(): void } {
  const named = new Set<RouteName>();
  refuseRoutesWithoutRow(deps.server);
  return {
    route(name, handler, options = {}) {
      if (named.has(name)) throw new Error(`route ${name} has two handlers`);
      named.add(name);
      // Fastify validates the request against the row of the route before it calls the handler.
      addRoute(deps, name, handler as AnyHandler, options.bodyLimit);
    },
    assertComplete() {
      const missing = Object.keys(ROUTES).filter((name) => !named.has(name as RouteName));
      if (missing.length > 0) throw new Error(`routes without a handler: ${missing.join(', ')}`);
    },
  };
}

/** A call of any route. */
type AnyCall = {
  params: unknown;
  query: unknown;
  body: unknown;
  user: Caller | null;
  recheck: (() => Promise<Caller>) | null;
  access: ProjectAccess | undefined;
  setEtag: SetEtag | undefined;
  ifMatch: string | undefined;
  stream: boolean | undefined;
  request: FastifyRequest;
  reply: FastifyReply;
};
type AnyHandler = (call: AnyCall) => Promise<unknown>;

function addRoute(
  deps: Deps,
  name: RouteName,
  handler: AnyHandler,
  bodyLimit: number | undefined,
): void {
  const row: Route = ROUTES[name];
  const checkRights = isRole(row.who) ? rightsOn(row, deps.stores) : null;
  const register = (scope: Pick<Server, 'route'>): unknown =>
    scope.route({
      method: row.method,
      url: row.path,
      config: { routeName: name },
      schema: SCHEMAS[name],
      ...defined({
        bodyLimit: bodyLimit ?? (row.who === 'public' ? PUBLIC_BODY_LIMIT : undefined),
        onSend:
          whenAudited(name) === 'never'
            ? undefined
            : (request: FastifyRequest, reply: FastifyReply) => deps.audit(name, request, reply),
      }),
      preValidation: (request, _reply, done) => done(bodyProblem(row, request)),
      handler: async (request, reply) => {
        refuseNul(row, request);
        const call = await callOf(deps, row, checkRights, request, reply);
        return answerCall(deps, row, call, () => runHandler(name, row, handler, call));
      },
    });
  if (row.rawBody !== true) return void register(deps.server);
  // Register the parsers in an encapsulated scope: only such a scope can have its own parsers.
  void deps.server.register(async (scope) => {
    installRawBodies(scope);
    register(scope);
  });
}

/** Checks the rights of the caller. access.ts has set `caller` if the row requires a role. */
async function callOf(
  { cookies, callers }: Deps,
  row: Route,
  checkRights: CheckRights | null,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<AnyCall> {
  const user = checkRights === null ? null : await checkRights(request, request.caller as Caller);
  return {
    params: request.params,
    query: request.query,
    body: request.body,
    user,
    recheck:
      checkRights === null
        ? null
        : async () => checkRights(request, await cookies.callerOf(request, callers)),
    access: row.scope === 'list' ? user?.access : undefined,
    setEtag: row.etag === true ? (etag) => void reply.header('etag', etag) : undefined,
    ifMatch: row.locked === true ? request.headers['if-match'] : undefined,
    stream: row.streams === true ? wantsEventStream(request.raw) : undefined,
    request,
    reply,
  };
}

async function runHandler(
  name: RouteName,
  row: Route,
  handler: AnyHandler,
  call: AnyCall,
): Promise<unknown> {
  const answer = await handler(call);
  // A 204 answer has no representation, so it needs no ETag.
  const needsEtag = row.etag === true && row.status !== 204;
  if (answer !== SENT && needsEtag && !call.reply.hasHeader('etag'))
    throw new Error(`${name} must call setEtag: its row has etag`);
  return answer;
}

/** Runs the handler, sets the headers and sends its answer. */
async function answerCall(
  deps: Deps,
  row: Route,
  call: AnyCall,
  run: () => Promise<unknown>,
): Promise<FastifyReply> {
  const { request, reply } = call;
  const key = takesIdempotencyKey(row) ? keyOf(request) : null;
  if (key !== null) {
    const text = await createOnce(deps, row, key, call, run);
    return reply.code(row.status).type(JSON_TYPE).send(text);
  }
  const answer = await run();
  if (answer === SENT) return reply;
  // Read the id of a new resource from the answer: the request does not contain it.
  if (row.params === undefined && hasId(answer))
    request.audited = { target: answer.id, ...request.audited };
  if (row.status === 201 || row.status === 202)
    void reply.header('location', locationOf(row, request.params, answer));
  return reply.code(row.status).send(answer);
}

/**
 * Runs the handler, or returns the stored answer to the same key. Sets the headers and returns the
 * text of the answer.
 */
async function createOnce(
  { runOnce, stores }: Deps,
  row: Route,
  key: string,
  { user: caller, request, reply }: AnyCall,
  run: () => Promise<unknown>,
): Promise<string> {
  const user = caller as Caller;
  const path = pathOf(row, request.params as Record<string, string>);
  const created = await runOnce(
    { user: user.id, key, method: row.method, path, body: request.body },
    async () => createdAnswer(row, await run(), request, reply),
  );
  if (created.replayed) await checkReplay(row, created.target, user, stores);
  void reply.headers(created.headers);
  if (created.replayed) void reply.header('idempotent-replayed', 'true');
  if (created.target !== null) request.audited = { ...request.audited, target: created.target };
  if (created.replayed) request.audited = { ...request.audited, code: 'replayed' };
  return created.text;
}

function createdAnswer(
  row: Route,
  answer: unknown,
  request: FastifyRequest,
  reply: FastifyReply,
): CreatedAnswer {
  const etag = reply.getHeader('etag');
  const target =
    request.audited?.target ?? (row.params === undefined && hasId(answer) ? answer.id : null);
  const location = locationOf(row, request.params, answer);
  return {
    text: JSON.stringify(answer),
    headers: { location, ...defined({ etag: etag === undefined ? undefined : String(etag) }) },
    target,
  };
}

/**
 * Refuses routes without a row. The HEAD route that Fastify adds to each GET route has the same
 * config. Pages and their files are not part of the API.
 */
function refuseRoutesWithoutRow(server: Server): void {
  server.addHook('onRoute', ({ config, method, url }) => {
    if (config?.routeName === undefined && !/^\/(?:docs|assets)(?:\/|$)/.test(url))
      throw new Error(`${String(method)} ${url} has no row in wire/routes.ts`);
  });
}

const JSON_TYPE = 'application/json; charset=utf-8';
