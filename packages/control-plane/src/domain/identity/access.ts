/**
 * Order of roles, and access to projects. Each API route names the lowest role that can use it.
 * Pure.
 */
import { roleInProject } from '@berth/wire/can';
import type { Member } from '@berth/wire/project';
import { ROLES, type Role } from '@berth/wire/vocabulary';

/** Compares roles: viewer < developer < admin. */
export const atLeast = (role: Role, needed: Role): boolean =>
  ROLES.indexOf(role) >= ROLES.indexOf(needed);

/** Values of `env` are often credentials, so only roles that can change them can read them. */
export const maySeeEnv = (role: Role): boolean => atLeast(role, 'developer');

/** Describes which projects a caller can see. */
export type ProjectAccess = {
  userId: string;
  /** True if the user is an admin, even if the token has a lower role. Admins see every project. */
  isAdmin: boolean;
  /**
   * Ids of the only projects that the token can use; null: no limit. Stays a limit after these
   * projects are deleted.
   */
  only: readonly string[] | null;
};

/** The fields of a project that decide who can see it. */
export type Guarded = { id: string; members: readonly Member[] };

export const seesAll = ({ isAdmin, only }: ProjectAccess): boolean => isAdmin && only === null;

/**
 * Returns the role of a caller in a project, or null if the caller must not see it. A project with
 * members is visible only to its members and to admins. The role in a project cannot exceed the
 * caller's own role.
 */
export function roleIn(
  project: Guarded,
  { role, access }: { role: Role; access: ProjectAccess },
): Role | null {
  if (access.only !== null && !access.only.includes(project.id)) return null;
  return roleInProject(project.members, { id: access.userId, role, isAdmin: access.isAdmin });
}

export const lowerOf = (a: Role, b: Role): Role => (atLeast(a, b) ? b : a);
