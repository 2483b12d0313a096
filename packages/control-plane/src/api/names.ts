/**
 * Replaces names by ids in requests of people: `:id` below /api/projects, /api/datasets and /api/nodes, and the filter `project_id`.
 * Checks that the user of the filter `user_id` exists. Handlers see only ids.
 */
import type { Route } from '@berth/wire/route';
import { type TSchema, Type } from 'typebox';
import { DomainError, invalid } from '../domain/errors.ts';
import type { Stores } from '../domain/stores.ts';

type Kind = 'project' | 'dataset' | 'node';
const KINDS: Record<string, Kind> = { projects: 'project', datasets: 'dataset', nodes: 'node' };

/** Replaces the names in a request by ids. Throws not_found (path), ambiguous, validation (filter). */
export type ResolveNames = (params: unknown, query: unknown) => Promise<void>;

/** Returns null if the route has no parameter that can be a name. */
export function namesIn(row: Route, stores: Pick<Stores, 'projects' | 'datasets' | 'nodes' | 'users'>): ResolveNames | null {
  const inPath = KINDS[/^\/api\/([a-z]+)\/:id(\/|$)/.exec(row.path)?.[1] ?? ''];
  const filters = namesOf(row.query);
  const byProject = filters.includes('project_id');
  const byUser = filters.includes('user_id');
  if (inPath === undefined && !byProject && !byUser) return null;

  async function idOf(kind: Kind, given: string): Promise<string> {
    const id = kind === 'node' ? await nodeOf(given) : await stores[`${kind}s`].idOf(given);
    if (id === null) throw new DomainError('not_found', `no ${kind} has the id or name ${quoted(given)}`);
    return id;
  }

  async function nodeOf(given: string): Promise<string | null> {
    const nodes = await stores.nodes.named(given);
    if (nodes.length <= 1) return nodes[0]?.id ?? null;
    const which = nodes.map((node) => `${node.role}:${node.hostname} (${node.id})`).join(', ');
    throw new DomainError('ambiguous', `${quoted(given)} is the name of ${nodes.length} nodes: ${which}`);
  }

  return async (params, query) => {
    const [named, filter] = [params as { id: string }, query as { project_id?: string; user_id?: string }];
    if (inPath !== undefined) named.id = await idOf(inPath, named.id);
    if (byProject && filter.project_id !== undefined) {
      const id = await stores.projects.idOf(filter.project_id);
      if (id === null) throw invalid('project_id', 'exists', 'no project has this id or name');
      filter.project_id = id;
    }
    if (byUser && filter.user_id !== undefined) await checkUser(filter.user_id);
  };

  async function checkUser(id: string): Promise<void> {
    try {
      await stores.users.get(id);
    } catch (error) {
      if (error instanceof DomainError && error.code === 'not_found') throw invalid('user_id', 'exists', 'there is no user with this id');
      throw error;
    }
  }
}

const namesOf = (query: TSchema | undefined): string[] =>
  query === undefined || !Type.IsObject(query) ? [] : Object.keys(query.properties);

const quoted = (text: string): string => `“${text}”`;
