/**
 * A row of the route table (routes.ts). Server, client and API documents are derived from these
 * rows.
 */
import { type TSchema, Type } from 'typebox';
import { Id, type Role } from './vocabulary.ts';

/**
 * Required credentials. `public`: none; `agent`: X-Agent-Secret; `gateway`: X-Gateway-Secret;
 * a role: that role or a higher one (viewer < developer < admin).
 */
export type Who = 'public' | 'agent' | 'gateway' | Role;

/**
 * How a request of a person relates to projects. The server derives its access checks from this
 * field. A person who cannot see a project gets the same answers as if the project did not exist.
 *
 * - `project`: `:id` is a project. The server checks it, and `user.role` of the handler is the role
 *   in this project.
 * - `deployment`: `:id` is a deployment, which is checked by its project, as above.
 * - `run`: `:id` is a run, which is checked by its project, as above.
 * - `query`: the query must have `project_id`, which is checked as above.
 * - `list`: the answer, or an error, can name several projects. The handler must omit projects that
 *   the caller cannot see, according to `access` of the call. A filter `project_id` is checked as
 *   above.
 * - `new`: the request creates a project. A replayed answer is checked as above.
 * - `none`: neither the answer nor an error names a project. Required for routes without a role.
 */
export type RouteScope = 'project' | 'deployment' | 'run' | 'query' | 'list' | 'new' | 'none';

export type Route = {
  method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  path: string;
  who: Who;
  scope: RouteScope;
  summary: string;
  params?: TSchema;
  query?: TSchema;
  body?: TSchema;
  /** The body of the request is optional. */
  bodyOptional?: true;
  /** The body has any content type, and the handler reads it as a stream. */
  rawBody?: true;
  status: number;
  /**
   * Location header of a 201 or 202. The last parameter is the id in the answer; the others are
   * parameters of the request. Default: the route's path up to `:id`, or the path followed by
   * `/:id`.
   */
  location?: string;
  answer?: TSchema;
  /** The answer has an ETag. */
  etag?: true;
  /**
   * Optimistic lock: the request takes If-Match. With a stale ETag the answer is 412
   * `changed_meanwhile`.
   */
  locked?: true;
  /**
   * With `Accept: text/event-stream` the answer is a stream, which continues after `Last-Event-ID`.
   */
  streams?: true;
};

export const ById = Type.Object({ id: Id });
/** An id or a name. The path determines the type of resource (control-plane/src/api/names.ts). */
export const ByName = Type.Object({
  id: Type.String({ minLength: 1, maxLength: 300, description: 'id or name' }),
});
export const NameFilter = {
  name: Type.Optional(Type.String({ minLength: 1, maxLength: 253, description: 'exact name' })),
};
/** Query with several ids, to look up the names of resources in another answer. */
export const IdsFilter = {
  ids: Type.Optional(
    Type.String({
      maxLength: 6_500,
      pattern: '^[A-Za-z0-9_-]{1,64}(?:,[A-Za-z0-9_-]{1,64}){0,99}$',
      description: 'ids, comma-separated, at most 100; unknown ones are left out',
    }),
  ),
};
/**
 * Longest hold (long poll) for agents in seconds. Agents notice a dead connection earlier, because
 * their registrations fail.
 */
export const MAX_HOLD_SECONDS = 300;
export const LongWait = {
  wait: Type.Optional(
    Type.Number({
      minimum: 0,
      maximum: MAX_HOLD_SECONDS,
      description: 'seconds to hold the request',
    }),
  ),
};
/**
 * Longest hold (long poll) for callers that cannot notice a dead connection in another way: 60 s.
 */
export const Wait = {
  wait: Type.Optional(
    Type.Number({ minimum: 0, maximum: 60, description: 'seconds to hold the request' }),
  ),
};
