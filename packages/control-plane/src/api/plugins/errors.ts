/**
 * Turns every error into a problem document (RFC 9457). An unknown error is logged and becomes
 * `internal`, without its message.
 */
import { defined } from '@berth/kit/defined';
import { cutText } from '@berth/kit/cut-text';
import { ERRORS, type ErrorCode } from '@berth/wire/errors';
import { ROUTES } from '@berth/wire/routes';
import type { FastifyError, FastifyReply, FastifyRequest } from 'fastify';
import { AgentRefused } from '../../domain/nodes/agent-identity.ts';
import { DomainError, NoTokenSent } from '../../domain/platform/errors.ts';
import type { Server } from '../define.ts';
import type { Dashboard } from './dashboard.ts';
import {
  addressOf,
  notHere,
  pathOf,
  PROBLEM_TYPE,
  problemOf,
  type ProblemParts,
  summaryOf,
} from '../problem.ts';
import { fieldProblems } from '../validation.ts';

/** Value of Retry-After in seconds if the error does not set one. */
const RETRY_AFTER: Partial<Record<ErrorCode, number>> = {
  too_many_requests: 1,
  shutting_down: 1,
  gateway_unreachable: 5,
  policy_unknown: 2,
};

type Answer = ProblemParts & {
  /** True if the request had no token at all (RFC 6750 section 3.1: then no error code). */
  hasNoToken?: boolean;
};

export function installErrors(server: Server, dashboard: Dashboard): void {
  server.setErrorHandler<FastifyError>((error, request, reply) => answer(error, request, reply));
  server.setNotFoundHandler((request, reply) => notFound(request, reply, dashboard));
  // Answer before the body is read, so that the body of an unknown path is neither received nor
  // parsed.
  server.addHook('onRequest', (request, reply, done) => {
    if (request.is404 || isTakenForName(request)) notFound(request, reply, dashboard);
    else done(hostProblem(request));
  });
}

function notFound(
  request: FastifyRequest,
  reply: FastifyReply,
  dashboard: Dashboard,
): FastifyReply {
  const allow = allowedMethods(request.url);
  if (allow.length === 0)
    return (
      dashboard.page(request, reply) ??
      send(reply, request, {
        code: 'not_found',
        detail: notHere(request.url),
        isUnknownPath: true,
      })
    );
  void reply.header('allow', allow.join(', '));
  return send(reply, request, {
    code: 'method_not_allowed',
    detail: `${addressOf(request.url)} supports only ${allow.join(', ')}`,
  });
}

/** Returns an error for an HTTP/1.1 request without Host (RFC 9112 section 3.2). */
function hostProblem(request: FastifyRequest): DomainError | undefined {
  const isMissing = request.raw.httpVersion === '1.1' && request.headers.host === undefined;
  return isMissing
    ? new DomainError('bad_request', 'the request has no Host header; HTTP/1.1 requires one')
    : undefined;
}

/**
 * Answers with a problem document. Fastify also calls it for errors before routing, such as a path
 * that cannot be decoded.
 */
export function answer(
  error: FastifyError,
  request: FastifyRequest,
  reply: FastifyReply,
): FastifyReply {
  const problem = translate(error, request);
  // Write the reason only to the log, so that an attacker learns nothing from the answer.
  if (error instanceof AgentRefused)
    request.log.warn(
      { reason: error.reason, route: request.routeOptions.config.routeName, address: request.ip },
      'agent refused',
    );
  if (problem.code === 'internal')
    request.log.error(
      { err: error, route: request.routeOptions.config.routeName },
      'request failed',
    );
  return send(reply, request, problem);
}

function send(
  reply: FastifyReply,
  request: FastifyRequest,
  { hasNoToken, ...parts }: Answer,
): FastifyReply {
  const { code, retryAfter = RETRY_AFTER[code] ?? null } = parts;
  if (code === 'unauthenticated')
    void reply.header(
      'www-authenticate',
      hasNoToken === true ? 'Bearer' : 'Bearer error="invalid_token"',
    );
  // Name the needed scope, as in RFC 6750 section 3.1.
  if (code === 'insufficient_scope')
    void reply.header(
      'www-authenticate',
      'Bearer error="insufficient_scope", scope="projects api"',
    );
  if (code === 'wrong_credentials' || code === 'refresh_token')
    void reply.header('www-authenticate', 'Bearer');
  if (code === 'agent_secret') void reply.header('www-authenticate', 'X-Agent-Secret');
  if (code === 'gateway_secret') void reply.header('www-authenticate', 'X-Gateway-Secret');
  if (retryAfter !== null) void reply.header('retry-after', String(retryAfter));
  if (code === 'shutting_down') void reply.header('connection', 'close');
  request.problemCode = code;
  return reply
    .code(ERRORS[code].status)
    .type(PROBLEM_TYPE)
    .send(problemOf({ ...parts, retryAfter }, request.id));
}

function translate(error: FastifyError, request: FastifyRequest): Answer {
  if (error instanceof DomainError)
    return {
      code: error.code,
      detail: error.message,
      fields: error.fields,
      hasNoToken: error instanceof NoTokenSent,
      ...defined({ retryAfter: error.retryAfter ?? undefined }),
    };
  if (error.validation !== undefined) return fromValidation(error, request);
  switch (error.code) {
    case 'FST_ERR_CTP_BODY_TOO_LARGE':
      return {
        code: 'body_too_large',
        detail: `the body is larger than ${bytes(request.routeOptions.bodyLimit)}`,
      };
    case 'FST_ERR_CTP_INVALID_MEDIA_TYPE':
      // Every invalid delivery of a hook gets the same answer.
      if (request.routeOptions.config.routeName === 'receiveHook')
        return { code: 'not_found', detail: notHere(request.url) };
      return {
        code: 'unsupported_media_type',
        detail:
          'the Content-Type of the body is ' +
          cutText(request.headers['content-type'] ?? 'missing', 200),
      };
    case 'FST_ERR_CTP_INVALID_JSON_BODY':
    case 'FST_ERR_CTP_EMPTY_JSON_BODY':
      return { code: 'invalid_json', detail: error.message };
    case 'FST_ERR_MAX_PARAM_LENGTH':
      return { code: 'not_found', detail: 'the path contains an id or name that is too long' };
    default:
      break;
  }
  // The JSON parser throws this error for invalid JSON, and for a key that would poison prototypes.
  if (error instanceof SyntaxError && error.statusCode === 400)
    return { code: 'invalid_json', detail: error.message };
  if (error.statusCode !== undefined && error.statusCode >= 400 && error.statusCode < 500)
    return { code: 'bad_request', detail: error.message };
  return {
    code: 'internal',
    detail: `the error was logged; include the request id ${request.id} when you report it`,
  };
}

function fromValidation(error: FastifyError, request: FastifyRequest): Answer {
  const part = error.validationContext ?? 'body';
  // A value that cannot be an id identifies no resource.
  if (
    part === 'params' &&
    (error.validation ?? []).every(({ instancePath }) => instancePath === '/id')
  )
    return { code: 'not_found', detail: notHere(request.url) };
  const fields = fieldProblems(error.validation ?? [], part);
  return { code: 'validation', detail: summaryOf(fields), fields };
}

/** Formats a limit in KiB or MiB: `8 KiB`, `1 MiB`. */
const bytes = (count: number): string =>
  count < 1_048_576 ? `${count / 1_024} KiB` : `${count / 1_048_576} MiB`;

const PATHS = Object.values(ROUTES).map((r) => ({
  method: r.method,
  path: r.path,
  isFixed: !r.path.includes(':'),
  pattern: new RegExp(`^${r.path.replaceAll('.', '\\.').replace(/:[a-z_]+/g, '[^/]+')}$`),
}));
const FIXED_PATHS = new Set<string>(PATHS.flatMap((p) => (p.isFixed ? [p.path] : [])));

/**
 * Returns whether a fixed path was matched as a name: DELETE /api/nodes/admissions must not delete
 * a node named `admissions`.
 */
const isTakenForName = (request: FastifyRequest): boolean =>
  FIXED_PATHS.has(pathOf(request.url)) && request.routeOptions.url?.includes('/:') === true;

function allowedMethods(url: string): string[] {
  const path = pathOf(url);
  const rows = FIXED_PATHS.has(path)
    ? PATHS.filter((p) => p.path === path)
    : PATHS.filter((p) => p.pattern.test(path));
  const methods = new Set<string>(rows.map((p) => p.method));
  if (methods.has('GET')) methods.add('HEAD');
  return [...methods].sort();
}
