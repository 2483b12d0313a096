/** Who may do what: roles are a ladder, and a route names the lowest rung that may use it. Pure. */
import { ROLES, type Role } from '@berth/wire/vocabulary';

/** viewer < developer < admin. */
export const atLeast = (role: Role, needed: Role): boolean => ROLES.indexOf(role) >= ROLES.indexOf(needed);

/** Values of `env` are credentials as often as not: only who may change them sees them. */
export const maySeeEnv = (role: Role): boolean => atLeast(role, 'developer');

export const lowerOf = (a: Role, b: Role): Role => (atLeast(a, b) ? b : a);
