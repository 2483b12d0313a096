/**
 * The only way a route comes into being: by its row in wire/routes.ts. The row says method, path, shapes and who may call;
 * the handler says what happens. `assertComplete` holds that every row has its handler.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { ErrorCode } from '@berth/wire/errors';
import { pathOf } from '@berth/wire/client';
import type { Route, Who } from '@berth/wire/route';
import { type AnswerOf, type BodyOf, type ParamsOf, type QueryOf, ROUTES, type RouteName } from '@berth/wire/routes';
import { ROLES, type Role } from '@berth/wire/vocabulary';
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import type { FastifyBaseLogger, FastifyInstance, FastifyReply, FastifyRequest, RawServerDefault } from 'fastify';
import { type TSchema, Type } from 'typebox';
import type { AgentProof } from '../domain/agent-identity.ts';
import { DomainError, invalid } from '../domain/errors.ts';
import { type Audit, type Audited, whenAudited } from './audit.ts';
import type { Caller } from './auth/callers.ts';
import { type CreatedAnswer, keyOf, type Once } from './idempotency.ts';
import { namesIn } from './names.ts';
import { sentence } from './problem.ts';
import { wantsEventStream } from './sse.ts';
import { nulProblems } from './validation.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /** Set by plugins/access.ts on every route that asks for a role. */
    caller: Caller | null;
    /** Set by plugins/access.ts on every route for agents. */
    agent: AgentProof | null;
    /** What the audit log should say that its hook cannot know; null: nothing. */
    audited: Audited | null;
    /** Of the problem that was answered; null: none was. */
    problemCode: ErrorCode | null;
  }
  interface FastifyContextConfig {
    routeName?: RouteName;
  }
}

export type Server = FastifyInstance<RawServerDefault, IncomingMessage, ServerResponse, FastifyBaseLogger, TypeBoxTypeProvider>;

type WhoOf<N extends RouteName> = (typeof ROUTES)[N]['who'];
/** `T` where the row has the flag; elsewhere the handler does not get it. */
type Flagged<N extends RouteName, F extends 'etag' | 'locked' | 'streams', T> = (typeof ROUTES)[N] extends Record<F, true> ? T : undefined;
/** Sets the ETag of the answer. */
export type Tag = (etag: string) => void;
export type Call<N extends RouteName> = {
  params: ParamsOf<N>;
  query: QueryOf<N>;
  body: BodyOf<N>;
  /** Who asks; null where nobody was asked for a role. */
  user: WhoOf<N> extends Exclude<Who, Role> ? null : Caller;
  /** Must be called once, where the row says that the answer has an ETag. */
  tag: Flagged<N, 'etag', Tag>;
  /** What the caller read; undefined: he does not say. */
  ifMatch: Flagged<N, 'locked', string | undefined>;
  /** Whether the caller prefers the stream. */
  stream: Flagged<N, 'streams', boolean>;
  request: FastifyRequest;
  reply: FastifyReply;
};
type Answer<N extends RouteName> = AnswerOf<N> extends undefined ? unknown : AnswerOf<N>;
/** Says that the handler has answered by itself: a stream, 304, exact bytes. (Not the reply: awaiting it waits until it is sent.) */
export const SENT = Symbol('sent');
export type Handler<N extends RouteName> = (call: Call<N>) => Promise<Answer<N> | typeof SENT>;
export type Define = <N extends RouteName>(name: N, handler: Handler<N>, options?: { bodyLimit?: number }) => void;

/** Bytes of a body that anybody may send: an address, a password or a token fit many times over. */
const PUBLIC_BODY_LIMIT = 8_192;

export function createDefine(
  server: Server,
  audit: Audit,
  stores: Parameters<typeof namesIn>[1],
  once: Once,
): { route: Define; assertComplete(): void } {
  const defined = new Set<RouteName>();
  const route: Define = (name, handler, options = {}) => {
    const row: Route = ROUTES[name];
    if (defined.has(name)) throw new Error(`route ${name} has two handlers`);
    defined.add(name);
    const resolveNames = isRole(row.who) ? namesIn(row, stores) : null;
    server.route({
      method: row.method,
      url: row.path,
      config: { routeName: name },
      schema: SCHEMAS[name],
      ...bodyLimitOf(row, options.bodyLimit),
      ...(whenAudited(name) === 'never' ? {} : { onSend: (request, reply) => audit(name, request, reply) }),
      preValidation: (request, _reply, done) => done(bodyProblem(row, request)),
      handler: async (request, reply) => {
        if (row.body !== undefined && row.who !== 'agent') checkNul(row.body, request.body);
        await resolveNames?.(request.params, request.query);
        // The shapes were just checked against this very row, and access.ts has set `caller` where the row asks for a role.
        const call = {
          params: request.params,
          query: request.query,
          body: request.body,
          user: request.caller,
          tag: row.etag === true ? (etag: string) => void reply.header('etag', etag) : undefined,
          ifMatch: row.locked === true ? request.headers['if-match'] : undefined,
          stream: row.streams === true ? wantsEventStream(request.raw) : undefined,
          request,
          reply,
        } as unknown as Call<typeof name>;
        const run = async () => {
          const answer = await handler(call);
          // 204 has no representation.
          const tagged = row.etag === true && row.status !== 204;
          if (answer !== SENT && tagged && !reply.hasHeader('etag')) throw new Error(`${name} answers without the ETag that its row has`);
          return answer;
        };
        const key = creates(row) ? keyOf(request) : null;
        if (key !== null) {
          const text = await createdOnce(row, key, { user: request.caller as Caller, request, reply }, run);
          return reply.code(row.status).type(JSON_TYPE).send(text);
        }
        const answer = await run();
        if (answer === SENT) return reply;
        // What was made by this has its id in the answer only.
        if (row.params === undefined && hasId(answer)) request.audited = { target: answer.id, ...request.audited };
        if (row.status === 201 || row.status === 202) void reply.header('location', locationOf(row, request.params, answer));
        return reply.code(row.status).send(answer);
      },
    });
  };
  /** The text of the answer, made now or stored before; its headers are set. */
  async function createdOnce(
    row: Route,
    key: string,
    { user, request, reply }: { user: Caller; request: FastifyRequest; reply: FastifyReply },
    run: () => Promise<unknown>,
  ): Promise<string> {
    const path = pathOf(row, request.params as Record<string, string>);
    const done = await once({ user: user.id, key, method: row.method, path, body: request.body }, async (): Promise<CreatedAnswer> => {
      const answer = await run();
      const etag = reply.getHeader('etag');
      const target = request.audited?.target ?? (row.params === undefined && hasId(answer) ? answer.id : null);
      const location = locationOf(row, request.params, answer);
      return { text: JSON.stringify(answer), headers: { location, ...(etag === undefined ? {} : { etag: String(etag) }) }, target };
    });
    void reply.headers(done.headers);
    if (done.replayed) void reply.header('idempotent-replayed', 'true');
    if (done.target !== null) request.audited = { ...request.audited, target: done.target };
    if (done.replayed) request.audited = { ...request.audited, code: 'replayed' };
    return done.text;
  }

  // Belongs to nobody but Fastify: HEAD of a GET route carries the same config.
  server.addHook('onRoute', (options) => {
    if (options.config?.routeName === undefined && !options.url.startsWith('/docs'))
      throw new Error(`${String(options.method)} ${options.url} has no row in wire/routes.ts`);
  });
  return {
    route,
    assertComplete() {
      const missing = Object.keys(ROUTES).filter((name) => !defined.has(name as RouteName));
      if (missing.length > 0) throw new Error(`routes without a handler: ${missing.join(', ')}`);
    },
  };
}

function bodyLimitOf(row: Route, given: number | undefined): { bodyLimit?: number } {
  const bodyLimit = given ?? (row.who === 'public' ? PUBLIC_BODY_LIMIT : undefined);
  return bodyLimit === undefined ? {} : { bodyLimit };
}

const JSON_TYPE = 'application/json; charset=utf-8';
/** What takes an Idempotency-Key. */
const creates = (row: Route): boolean => row.status === 201 && isRole(row.who);

const hasId = (answer: unknown): answer is { id: string } =>
  typeof answer === 'object' && answer !== null && 'id' in answer && typeof answer.id === 'string';

/** The path of what was made, or of what changes. */
function locationOf(row: Route, params: unknown, answer: unknown): string {
  const end = row.path.indexOf('/:id');
  if (row.location === undefined && end >= 0)
    return pathOf({ ...row, path: row.path.slice(0, end + '/:id'.length) }, params as { id: string });
  if (!hasId(answer)) throw new Error(`${row.method} ${row.path} answers ${row.status} without an id`);
  return pathOf({ ...row, path: row.location ?? `${row.path}/:id` }, { id: answer.id });
}

/** Agents may send more than is known here. */
const takesNoBody = (row: Route): boolean => row.method === 'POST' && row.body === undefined && row.who !== 'agent';

function unexpectedBody(body: unknown): DomainError | undefined {
  if (body === undefined) return undefined;
  const object = typeof body === 'object' && body !== null && !Array.isArray(body);
  const [field] = object ? Object.keys(body) : [];
  if (!object) return invalid('body', 'type', 'must be an object without fields, or left out');
  return field === undefined ? undefined : invalid(field.slice(0, 100), 'unknown_field', 'there is no such field: this request takes none');
}

function bodyProblem(row: Route, request: FastifyRequest): DomainError | undefined {
  if (takesNoBody(row)) return unexpectedBody(request.body);
  if (row.body === undefined || request.body !== undefined) return undefined;
  if (row.bodyOptional !== true) return new DomainError('invalid_json', 'the body is empty; send JSON');
  request.body = {};
  return undefined;
}

/** Looks at the fields that the route reads: what it ignores is never stored or shown. */
function checkNul(schema: TSchema, body: unknown): void {
  const names = Object.keys((schema as { properties?: object }).properties ?? {});
  const read =
    typeof body === 'object' && body !== null ? Object.fromEntries(Object.entries(body).filter(([k]) => names.includes(k))) : body;
  const problems = nulProblems(read);
  if (problems.length > 0) throw new DomainError('validation', sentence(problems), problems);
}

/** Unknown query parameters are refused as unknown fields are: a misspelt filter would otherwise show everything. Not for agents and the proxy. */
const strict = (query: TSchema, row: Route): TSchema => (isRole(row.who) ? { ...query, additionalProperties: false } : query);
const isRole = (who: Who): who is Role => (ROLES as readonly string[]).includes(who);

/** The shapes that a request is checked against. The tests check the shape of the answer. */
function schemaOf(row: Route): Record<string, unknown> {
  return {
    ...(row.params === undefined ? {} : { params: row.params }),
    ...(row.query === undefined
      ? isRole(row.who)
        ? { querystring: Type.Object({}, { additionalProperties: false }) }
        : {}
      : { querystring: strict(row.query, row) }),
    ...(row.body === undefined ? {} : { body: row.body }),
  };
}

/** Made once, so that ajv finds each schema that it has compiled. */
const SCHEMAS = Object.fromEntries(Object.entries(ROUTES).map(([name, row]) => [name, schemaOf(row)])) as Record<
  RouteName,
  ReturnType<typeof schemaOf>
>;
