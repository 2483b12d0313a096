/**
 * Routes of tokens with which programs act for people: personal API tokens, and device tokens from
 * the gateway.
 */
import { DomainError, invalid } from '../../domain/platform/errors.ts';
import type { Role } from '@berth/wire/vocabulary';
import { atLeast, roleIn } from '../../domain/identity/access.ts';
import type { Caller } from '../auth/callers.ts';
import type { Define, Call } from '../define.ts';
import { pageOf } from '../page.ts';
import { sha256Of, newApiToken, newId } from '../auth/secrets.ts';
import { apiTokenView, deviceTokenView } from '../views.ts';
import { sessionOnly } from './auth.ts';
import type { ApiTokenStore, DeviceTokenStore } from '../../domain/identity/identity-stores.ts';
import type { ProjectStore } from '../../domain/projects/project-store.ts';
import type { Changes } from '../../domain/platform/changes.ts';

const MAX_LIFETIME_MS = 366 * 86_400_000;

export type Deps = {
  apiTokens: Pick<ApiTokenStore, 'create' | 'list' | 'revoke'>;
  projects: Pick<ProjectStore, 'guarded'>;
  deviceTokens: Pick<DeviceTokenStore, 'list' | 'revoke'>;
  changes: Pick<Changes, 'notify'>;
  now: () => number;
};

export function apiTokenRoutes(route: Define, deps: Deps): void {
  route('listTokens', (call) => listTokens(deps, call));
  route('createToken', (call) => createToken(deps, call));
  route('deleteToken', (call) => deleteToken(deps, call));
  route('listDeviceTokens', (call) => listDeviceTokens(deps, call));
  route('deleteDeviceToken', (call) => deleteDeviceToken(deps, call));
}

async function listTokens(deps: Deps, { query, user }: Call<'listTokens'>) {
  // Refuse a limited token: the list names the projects of all tokens of the user.
  if (user.access.only !== null)
    throw new DomainError('forbidden', 'a token that is limited to projects cannot list tokens');
  const owner = query.user_id ?? user.id;
  if (owner !== user.id) adminOnly(user.role, 'only admins can list the tokens of other people');
  const { items, next } = await deps.apiTokens.list(owner, deps.now(), pageOf(query));
  return { items: items.map(apiTokenView), next_cursor: next };
}

/**
 * Returns the ids of the projects to which a new token is limited; null: no limit. Throws
 * validation.
 */
async function projectsOf(
  deps: Deps,
  { projects, role }: { projects?: string[] | null; role: Role },
  user: Caller,
): Promise<string[] | null> {
  if (projects === undefined || projects === null) return null;
  if (role === 'admin')
    throw invalid(
      'role',
      'limited',
      'must be developer or viewer for a token that is limited to projects',
    );
  const ids = new Set<string>();
  for (const [i, given] of projects.entries()) {
    const project = await deps.projects.guarded(given);
    if (project === null || roleIn(project, user) === null)
      throw invalid(`projects[${i}]`, 'exists', 'no project has this id or name');
    ids.add(project.id);
  }
  return [...ids];
}

async function createToken(deps: Deps, { body, user }: Call<'createToken'>) {
  // Require a session: a token that creates tokens could replace itself before it expires.
  sessionOnly(user);
  if (!atLeast(user.role, body.role))
    throw invalid('role', 'above_own', `must not be above your own role, ${user.role}`);
  const expires_at = Date.parse(body.expires_at);
  if (expires_at <= deps.now()) throw invalid('expires_at', 'past', 'must be in the future');
  if (expires_at > deps.now() + MAX_LIFETIME_MS)
    throw invalid('expires_at', 'too_far', 'must be within a year from now');
  const projects = await projectsOf(deps, body, user);
  const token = newApiToken();
  const made = await deps.apiTokens.create(
    {
      id: newId(),
      user_id: user.id,
      name: body.name,
      role: body.role,
      projects,
      expires_at,
      hash: sha256Of(token),
    },
    deps.now(),
  );
  return { ...apiTokenView(made), token };
}

async function deleteToken(deps: Deps, { params, user }: Call<'deleteToken'>) {
  // The store checks the owner: other people get not_found.
  await deps.apiTokens.revoke(params.id, user.role === 'admin' ? null : user.id);
  deps.changes.notify('access');
}

async function listDeviceTokens(deps: Deps, { query, user }: Call<'listDeviceTokens'>) {
  const email = query.all === true ? undefined : (query.email?.toLowerCase() ?? user.email);
  if (email !== user.email)
    adminOnly(user.role, 'only admins can list the device tokens of other people');
  const { items, next } = await deps.deviceTokens.list(
    email === undefined ? {} : { email },
    deps.now(),
    pageOf(query),
  );
  return { items: items.map(deviceTokenView), next_cursor: next };
}

async function deleteDeviceToken(deps: Deps, { params, user }: Call<'deleteDeviceToken'>) {
  await deps.deviceTokens.revoke(params.id, user.role === 'admin' ? null : user.email);
  deps.changes.notify('policy');
}

function adminOnly(role: string, why: string): void {
  if (role !== 'admin') throw new DomainError('forbidden', why);
}
