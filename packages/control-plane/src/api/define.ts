/**
 * Defines each route from its row in wire/routes.ts, which has method, path, schemas and required
 * credentials. The handler has the behaviour. `assertComplete` checks that every row has a handler.
 * A route without a row is refused.
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
import { type TSchema, Type } from 'typebox';
import type { AgentProof } from '../domain/nodes/agent-identity.ts';
import type { ProjectAccess } from '../domain/identity/access.ts';
import { DomainError, invalid } from '../domain/platform/errors.ts';
import { type Audit, type Audited, whenAudited } from './audit.ts';
import type { Caller, Callers } from './auth/callers.ts';
import type { SessionCookies } from './auth/session-cookie.ts';
import { type CreatedAnswer, keyOf, type RunOnce } from './idempotency.ts';
import { installRawBodies } from './plugins/raw-bodies.ts';
import { notHere, summaryOf } from './problem.ts';
import { checkReplay, rightsOn, type RightsStores } from './rights.ts';
import { isRole, takesIdempotencyKey } from './route-rules.ts';
import { wantsEventStream } from './sse.ts';
import { nulProblems } from './validation.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /** Set by plugins/access.ts on every route that requires a role. */
    caller: Caller | null;
    /** Set by plugins/access.ts on every route for agents. */
    agent: AgentProof | null;
    /** Details for the audit log that its hook cannot know; null if there are none. */
    audited: Audited | null;
    /** Code of the problem in the answer; null if the answer is no problem. */
    /** The value of GATEWAY_SECRET that the gateway sent. */
    gatewaySecret: string | null;
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
   * The caller, with the role in the project of the request (rights.ts); null on routes without a
   * role.
   */
  user: WhoOf<N> extends Exclude<Who, Role> ? null : Caller;
  /**
   * Checks credentials and rights again, and returns the caller as they are now. A held request
   * calls it before it answers, a stream before it sends more. Throws if the rights have ended.
   */
  recheck: WhoOf<N> extends Exclude<Who, Role> ? null : () => Promise<Caller>;
  /** Which projects the answer may name. */
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
 * A handler returns it after it has sent the answer itself: a stream, 304, exact bytes. Handlers
 * never return `reply`: it is a thenable, so the caller's `await` would block until the stream
 * ends.
 */
export const SENT = Symbol('sent');
export type Handler<N extends RouteName> = (call: Call<N>) => Promise<Answer<N> | typeof SENT>;
export type Define = <N extends RouteName>(
  name: N,
  handler: Handler<N>,
  options?: { bodyLimit?: number },
) => void;

/**
 * Size limit in bytes of a body on public routes. An e-mail address, a password or a token is far
 * smaller.
 */
const PUBLIC_BODY_LIMIT = 8_192;

export function createDefine(
  server: Server,
  audit: Audit,
  {
    stores,
    callers,
    cookies,
    runOnce,
  }: {
    stores: RightsStores;
    callers: Pick<Callers, 'user'>;
    cookies: Pick<SessionCookies, 'callerOf'>;
    runOnce: RunOnce;
  },
): { route: Define; assertComplete(): void } {
  const named = new Set<RouteName>();
  const route: Define = (name, handler, options = {}) => {
    const row: Route = ROUTES[name];
    if (named.has(name)) throw new Error(`route ${name} has two handlers`);
    named.add(name);
    const checkRights = isRole(row.who) ? rightsOn(row, stores) : null;
    const register = (scope: Pick<Server, 'route'>): unknown =>
      scope.route({
        method: row.method,
        url: row.path,
        config: { routeName: name },
        schema: SCHEMAS[name],
        ...bodyLimitOf(row, options.bodyLimit),
        ...(whenAudited(name) === 'never'
          ? {}
          : { onSend: (request, reply) => audit(name, request, reply) }),
        preValidation: (request, _reply, done) => done(bodyProblem(row, request)),
        handler: async (request, reply) => {
          // A value that cannot be an id or a name belongs to no resource.
          if (nulProblems(request.params).length > 0)
            throw new DomainError('not_found', notHere(request.url));
          if (row.query !== undefined) checkNul(row.query, request.query);
          if (row.body !== undefined && row.who !== 'agent') checkNul(row.body, request.body);
          const user =
            checkRights === null ? null : await checkRights(request, request.caller as Caller);
          // Fastify has validated the request against this row, and access.ts has set `caller` if
          // the row requires a role.
          const call = {
            params: request.params,
            query: request.query,
            body: request.body,
            user,
            recheck:
              checkRights === null
                ? null
                : async () => checkRights(request, await cookies.callerOf(request, callers)),
            access: row.scope === 'list' ? user?.access : undefined,
            setEtag:
              row.etag === true ? (etag: string) => void reply.header('etag', etag) : undefined,
            ifMatch: row.locked === true ? request.headers['if-match'] : undefined,
            stream: row.streams === true ? wantsEventStream(request.raw) : undefined,
            request,
            reply,
          } as unknown as Call<typeof name>;
          const run = async () => {
            const answer = await handler(call);
            // 204 has no representation.
            const needsEtag = row.etag === true && row.status !== 204;
            if (answer !== SENT && needsEtag && !reply.hasHeader('etag'))
              throw new Error(`${name} must call setEtag: its row has etag`);
            return answer;
          };
          const key = takesIdempotencyKey(row) ? keyOf(request) : null;
          if (key !== null) {
            const text = await createOnce(row, key, { user: user as Caller, request, reply }, run);
            return reply.code(row.status).type(JSON_TYPE).send(text);
          }
          const answer = await run();
          if (answer === SENT) return reply;
          // Only the answer has the id of a new resource.
          if (row.params === undefined && hasId(answer))
            request.audited = { target: answer.id, ...request.audited };
          if (row.status === 201 || row.status === 202)
            void reply.header('location', locationOf(row, request.params, answer));
          return reply.code(row.status).send(answer);
        },
      });
    if (row.rawBody !== true) return void register(server);
    // Only an encapsulated scope can have its own parsers.
    void server.register(async (scope) => {
      installRawBodies(scope);
      register(scope);
    });
  };
  /**
   * Runs the handler, or finds the stored answer to the same key. Sets the headers and returns the
   * text of the answer.
   */
  async function createOnce(
    row: Route,
    key: string,
    { user, request, reply }: { user: Caller; request: FastifyRequest; reply: FastifyReply },
    run: () => Promise<unknown>,
  ): Promise<string> {
    const path = pathOf(row, request.params as Record<string, string>);
    const done = await runOnce(
      { user: user.id, key, method: row.method, path, body: request.body },
      async (): Promise<CreatedAnswer> => {
        const answer = await run();
        const etag = reply.getHeader('etag');
        const target =
          request.audited?.target ?? (row.params === undefined && hasId(answer) ? answer.id : null);
        const location = locationOf(row, request.params, answer);
        return {
          text: JSON.stringify(answer),
          headers: {
            location,
            ...defined({ etag: etag === undefined ? undefined : String(etag) }),
          },
          target,
        };
      },
    );
    if (done.replayed) await checkReplay(row, done.target, user, stores);
    void reply.headers(done.headers);
    if (done.replayed) void reply.header('idempotent-replayed', 'true');
    if (done.target !== null) request.audited = { ...request.audited, target: done.target };
    if (done.replayed) request.audited = { ...request.audited, code: 'replayed' };
    return done.text;
  }

  // The HEAD route that Fastify adds to each GET route has the same config. Pages and their files
  // are not part of the API.
  server.addHook('onRoute', (options) => {
    if (options.config?.routeName === undefined && !/^\/(?:docs|assets)(?:\/|$)/.test(options.url))
      throw new Error(`${String(options.method)} ${options.url} has no row in wire/routes.ts`);
  });
  return {
    route,
    assertComplete() {
      const missing = Object.keys(ROUTES).filter((name) => !named.has(name as RouteName));
      if (missing.length > 0) throw new Error(`routes without a handler: ${missing.join(', ')}`);
    },
  };
}

function bodyLimitOf(row: Route, given: number | undefined): { bodyLimit?: number } {
  const bodyLimit = given ?? (row.who === 'public' ? PUBLIC_BODY_LIMIT : undefined);
  return bodyLimit === undefined ? {} : { bodyLimit };
}

const JSON_TYPE = 'application/json; charset=utf-8';

const hasId = (answer: unknown): answer is { id: string } =>
  typeof answer === 'object' && answer !== null && 'id' in answer && typeof answer.id === 'string';

/** Returns the path of the resource that was created or is changing. */
function locationOf(row: Route, params: unknown, answer: unknown): string {
  if (row.location?.includes(':') === false) return row.location;
  const end = row.path.indexOf('/:id');
  if (row.location === undefined && end >= 0)
    return pathOf(
      { ...row, path: row.path.slice(0, end + '/:id'.length) },
      params as { id: string },
    );
  if (row.location?.includes('/:name') === true)
    return pathOf({ ...row, path: row.location }, params as { id: string; name: string });
  // A resource of which a project has one: its path has the id of the project and no other.
  if (row.location !== undefined && end >= 0 && !hasId(answer))
    return pathOf({ ...row, path: row.location }, params as { id: string });
  if (!hasId(answer))
    throw new Error(`${row.method} ${row.path} answers ${row.status} without an id`);
  const path = row.location ?? `${row.path}/:id`;
  const last = /:(\w+)$/.exec(path)?.[1] ?? 'id';
  return pathOf({ ...row, path }, { ...(params as Record<string, string>), [last]: answer.id });
}

/** Agents may send unknown fields, so a body from them is ignored and not refused. */
const takesNoBody = (row: Route): boolean =>
  row.method === 'POST' && row.body === undefined && row.rawBody !== true && row.who !== 'agent';

function unexpectedBody(body: unknown): DomainError | undefined {
  if (body === undefined) return undefined;
  const object = typeof body === 'object' && body !== null && !Array.isArray(body);
  const [field] = object ? Object.keys(body) : [];
  if (!object) return invalid('body', 'type', 'must be an object without fields, or left out');
  return field === undefined
    ? undefined
    : invalid(
        field.slice(0, 100),
        'unknown_field',
        'is not a field of this request, which takes no fields',
      );
}

function bodyProblem(row: Route, request: FastifyRequest): DomainError | undefined {
  if (takesNoBody(row)) return unexpectedBody(request.body);
  if (row.body === undefined || request.body !== undefined) return undefined;
  if (row.bodyOptional !== true)
    return new DomainError('invalid_json', 'the body is empty; send JSON');
  request.body = {};
  return undefined;
}

/** Checks only the fields that the route reads. Ignored fields are never stored or shown. */
function checkNul(schema: TSchema, sent: unknown): void {
  const names = Object.keys((schema as { properties?: object }).properties ?? {});
  const read =
    typeof sent === 'object' && sent !== null
      ? Object.fromEntries(Object.entries(sent).filter(([k]) => names.includes(k)))
      : sent;
  const problems = nulProblems(read);
  if (problems.length > 0) throw new DomainError('validation', summaryOf(problems), problems);
}

/**
 * Refuses unknown query parameters of people: a misspelt filter would otherwise match everything.
 * Agents and the proxy may send others.
 */
const strict = (query: TSchema, row: Route): TSchema =>
  isRole(row.who) ? { ...query, additionalProperties: false } : query;

/** Returns the schemas for a request. Only the tests validate answers. */
function schemaOf(row: Route): Record<string, unknown> {
  return {
    ...defined({ params: row.params }),
    ...(row.query === undefined
      ? isRole(row.who)
        ? { querystring: Type.Object({}, { additionalProperties: false }) }
        : {}
      : { querystring: strict(row.query, row) }),
    ...defined({ body: row.body }),
  };
}

/** Created once per process, so that ajv finds the schemas that it has compiled. */
const SCHEMAS = Object.fromEntries(
  Object.entries(ROUTES).map(([name, row]) => [name, schemaOf(row)]),
) as Record<RouteName, ReturnType<typeof schemaOf>>;
