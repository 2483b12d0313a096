/**
 * Checks a person's rights on the project of a request, by the field `scope` of the route
 * (wire/route.ts). A project that the person cannot see gets the same answer as a missing one. Also
 * replaces names by ids (names.ts).
 */
import type { Route } from '@berth/wire/route';
import { ROUTES } from '@berth/wire/routes';
import type { Role } from '@berth/wire/vocabulary';
import { atLeast, roleIn, seesAll } from '../domain/identity/access.ts';
import { DomainError } from '../domain/platform/errors.ts';
import type { Caller } from './auth/callers.ts';
import { type NameStores, namesIn } from './names.ts';
import type { DeploymentStore } from '../domain/deployments/deployment-store.ts';
import type { NotificationStore } from '../domain/notifications/notifications.ts';
import type { ProjectStore } from '../domain/projects/project-store.ts';
import { noRun, type RunStore } from '../domain/runs/run-store.ts';

/** Error text for a missing notification, and for one that the caller cannot see. */
export const NO_NOTIFICATION = 'no notification has this id or name';

export type RightsStores = NameStores & {
  projects: Pick<ProjectStore, 'guarded' | 'visible'>;
  notifications: Pick<NotificationStore, 'get'>;
  deployments: Pick<DeploymentStore, 'projectOf'>;
  runs: Pick<RunStore, 'projectOf'>;
};

/**
 * Replaces names by ids in params and query, and returns the caller with the role in the project of
 * the request. Throws not_found or validation (project), forbidden (role in the project).
 */
export type CheckRights = (
  request: { params: unknown; query: unknown },
  caller: Caller,
) => Promise<Caller>;

/** Creates the check for a route of people. */
export function rightsOn(row: Route, stores: RightsStores): CheckRights {
  const resolve = namesIn(row, stores);
  const who = row.who as Role;

  async function roleInDeployment(id: string, caller: Caller): Promise<Role> {
    if (seesAll(caller.access)) return caller.role;
    const project = await stores.deployments.projectOf(id);
    const role = project === null ? null : roleIn(project, caller);
    if (role === null) throw new DomainError('not_found', noDeployment(id));
    return role;
  }

  async function roleInRun(id: string, caller: Caller): Promise<Role> {
    if (seesAll(caller.access)) return caller.role;
    const project = await stores.runs.projectOf(id);
    const role = project === null ? null : roleIn(project, caller);
    if (role === null) throw new DomainError('not_found', noRun(id));
    return role;
  }

  function roleFor(id: string, caller: Caller, named: Role): Promise<Role> | Role {
    if (row.scope === 'deployment') return roleInDeployment(id, caller);
    return row.scope === 'run' ? roleInRun(id, caller) : named;
  }

  return async ({ params, query }, caller) => {
    const named = (await resolve?.(params, query, caller)) ?? caller.role;
    const role = await roleFor((params as { id: string }).id, caller, named);
    if (!atLeast(role, who))
      throw new DomainError(
        'forbidden',
        `this request requires the role ${who} or a higher one; your role in this project is ` +
          role,
      );
    return role === caller.role ? caller : { ...caller, role };
  };
}

/** Error text for a missing deployment, the same as in the store. */
const noDeployment = (id: string): string => `no deployment has the id ${id}`;

/**
 * Refuses a token that is limited to projects if it changes something outside projects or creates a
 * project.
 */
export function refuseOutsideProjects({ scope, method }: Route, { access }: Caller): void {
  if (access.only === null || method === 'GET') return;
  if (scope === 'none' || scope === 'list' || scope === 'new')
    throw new DomainError(
      'forbidden',
      'this token is limited to projects: outside them it can only read',
    );
}

/**
 * Checks a stored answer before it is sent again. Throws not_found if the caller can no longer see
 * the created resource: a new project, or a notification that names projects. For other requests,
 * the rights on the project were checked before.
 */
export async function checkReplay(
  row: Route,
  id: string | null,
  caller: Caller,
  { projects, notifications }: Pick<RightsStores, 'projects' | 'notifications'>,
): Promise<void> {
  if (id === null) return;
  if (row.scope === 'new') {
    const project = await projects.guarded(id);
    if (project === null || roleIn(project, caller) === null)
      throw new DomainError('not_found', `no project has the id ${id}`);
  }
  if (row.path === ROUTES.createNotification.path) {
    const { projects: named } = await notifications.get(id);
    const seen = await projects.visible(named, caller.access);
    if (named.some((project) => !seen.has(project)))
      throw new DomainError('not_found', NO_NOTIFICATION);
  }
}
