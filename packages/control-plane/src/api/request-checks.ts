/** Schemas and checks of a request, derived from the row of its route. */
import { defined } from '@berth/kit/defined';
import type { Route } from '@berth/wire/route';
import { type RouteName, ROUTES } from '@berth/wire/routes';
import type { FastifyRequest } from 'fastify';
import { type TSchema, Type } from 'typebox';
import { DomainError, invalid } from '../domain/platform/errors.ts';
import { notHere, summaryOf } from './problem.ts';
import { isRole } from './route-rules.ts';
import { nulProblems } from './validation.ts';

/**
 * Returns whether a body is refused. Bodies from agents are ignored instead: agents can send
 * unknown fields.
 */
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

export function bodyProblem(row: Route, request: FastifyRequest): DomainError | undefined {
  if (takesNoBody(row)) return unexpectedBody(request.body);
  if (row.body === undefined || request.body !== undefined) return undefined;
  if (row.bodyOptional !== true)
    return new DomainError('invalid_json', 'the body is empty; send JSON');
  request.body = {};
  return undefined;
}

/**
 * Checks for NUL only the fields that the route reads. Ignored fields are never stored or shown.
 */
function checkNul(schema: TSchema, sent: unknown): void {
  const names = Object.keys((schema as { properties?: object }).properties ?? {});
  const read =
    typeof sent === 'object' && sent !== null
      ? Object.fromEntries(Object.entries(sent).filter(([k]) => names.includes(k)))
      : sent;
  const problems = nulProblems(read);
  if (problems.length > 0) throw new DomainError('validation', summaryOf(problems), problems);
}

/** Throws not_found or validation if a value that the route reads contains a NUL character. */
export function refuseNul(row: Route, request: FastifyRequest): void {
  // A value that cannot be an id or a name identifies no resource.
  if (nulProblems(request.params).length > 0)
    throw new DomainError('not_found', notHere(request.url));
  if (row.query !== undefined) checkNul(row.query, request.query);
  if (row.body !== undefined && row.who !== 'agent') checkNul(row.body, request.body);
}

/**
 * Returns the schema of the query. For people, it refuses unknown parameters, because a misspelt
 * filter would match everything. Agents and the proxy can send unknown parameters.
 */
function querySchema({ who, query }: Route): TSchema | undefined {
  if (!isRole(who)) return query;
  return { ...(query ?? Type.Object({})), additionalProperties: false };
}

/** Returns the schemas for a request. Answers are validated only in the tests. */
function schemaOf(row: Route): Record<string, unknown> {
  return {
    ...defined({ params: row.params }),
    ...defined({ querystring: querySchema(row) }),
    ...defined({ body: row.body }),
  };
}

/** Created once per process, so that ajv finds the compiled schemas again. */
export const SCHEMAS = Object.fromEntries(
  Object.entries(ROUTES).map(([name, row]) => [name, schemaOf(row)]),
) as Record<RouteName, ReturnType<typeof schemaOf>>;
