/**
 * Replaces names by ids in requests of people: `:id` below the paths of KINDS, and the filter
 * `project_id`. Checks that the user in the filter `user_id` exists. Handlers see only ids. A
 * project that the caller cannot see counts as missing.
 */
import type { Route } from '@berth/wire/route';
import type { Role } from '@berth/wire/vocabulary';
import { type TSchema, Type } from 'typebox';
import { roleIn } from '../domain/identity/access.ts';
import { DomainError, invalid } from '../domain/platform/errors.ts';
import type { Caller } from './auth/callers.ts';
import type { DatasetStore } from '../domain/data/dataset-stores.ts';
import type { NodeStore } from '../domain/nodes/node-store.ts';
import type { NotificationStore } from '../domain/notifications/notifications.ts';
import type { ProjectStore } from '../domain/projects/project-store.ts';
import type { UserStore } from '../domain/identity/user-store.ts';

type Kind = 'project' | 'dataset' | 'node' | 'notification';
const KINDS: Record<string, Kind> = {
  projects: 'project',
  datasets: 'dataset',
  nodes: 'node',
  notifications: 'notification',
};

/**
 * Replaces the names in a request by ids. Returns the caller's role in the named project, or null
 * if the request names none. Throws not_found (path), ambiguous, validation (filter).
 */
export type ResolveNames = (
  params: unknown,
  query: unknown,
  caller: Caller,
) => Promise<Role | null>;

export type NameStores = {
  projects: Pick<ProjectStore, 'guarded' | 'idOf'>;
  datasets: Pick<DatasetStore, 'idOf'>;
  nodes: Pick<NodeStore, 'named'>;
  notifications: Pick<NotificationStore, 'idOf'>;
  users: Pick<UserStore, 'get'>;
};

/** Returns null if the route has no parameter that can be a name. */
export function namesIn(row: Route, stores: NameStores): ResolveNames | null {
  const inPath = KINDS[/^\/api\/([a-z]+)\/:id(\/|$)/.exec(row.path)?.[1] ?? ''];
  const filters = namesOf(row.query);
  const byProject = filters.includes('project_id');
  const byUser = filters.includes('user_id');
  if (inPath === undefined && !byProject && !byUser) return null;

  async function projectOf(
    given: string,
    caller: Caller,
  ): Promise<{ id: string; role: Role } | null> {
    const project = await stores.projects.guarded(given);
    const role = project === null ? null : roleIn(project, caller);
    return project === null || role === null ? null : { id: project.id, role };
  }

  async function found(
    kind: Kind,
    given: string,
    caller: Caller,
  ): Promise<{ id: string; role: Role | null }> {
    if (kind === 'project') return (await projectOf(given, caller)) ?? missing(kind, given);
    const id = kind === 'node' ? await nodeOf(given) : await stores[`${kind}s`].idOf(given);
    return id === null ? missing(kind, given) : { id, role: null };
  }

  async function nodeOf(given: string): Promise<string | null> {
    const nodes = await stores.nodes.named(given);
    if (nodes.length <= 1) return nodes[0]?.id ?? null;
    const which = nodes.map((node) => `${node.role}:${node.hostname} (${node.id})`).join(', ');
    throw new DomainError(
      'ambiguous',
      `${quoted(given)} is the name of ${nodes.length} nodes: ${which}`,
    );
  }

  return async (params, query, caller) => {
    let role: Role | null = null;
    const [named, filter] = [
      params as { id: string },
      query as { project_id?: string; user_id?: string },
    ];
    if (inPath !== undefined) ({ id: named.id, role } = await found(inPath, named.id, caller));
    if (byProject && filter.project_id !== undefined) {
      const project = await projectOf(filter.project_id, caller);
      if (project === null) throw invalid('project_id', 'exists', 'no project has this id or name');
      filter.project_id = project.id;
      role = project.role;
    }
    if (byUser && filter.user_id !== undefined) await checkUser(filter.user_id);
    return role;
  };

  async function checkUser(id: string): Promise<void> {
    try {
      await stores.users.get(id);
    } catch (error) {
      if (error instanceof DomainError && error.code === 'not_found')
        throw invalid('user_id', 'exists', 'there is no user with this id');
      throw error;
    }
  }
}

function missing(kind: Kind, given: string): never {
  // The same text as for a notification that the caller cannot see.
  if (kind === 'notification')
    throw new DomainError('not_found', 'no notification has this id or name');
  throw new DomainError('not_found', `no ${kind} has the id or name ${quoted(given)}`);
}

const namesOf = (query: TSchema | undefined): string[] =>
  query === undefined || !Type.IsObject(query) ? [] : Object.keys(query.properties);

const quoted = (text: string): string => `“${text}”`;
