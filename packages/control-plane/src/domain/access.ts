/** Roles and their order. A route names the lowest role that may use it. Pure. */
import { ROLES, type Role } from '@berth/wire/vocabulary';

/** viewer < developer < admin. */
export const atLeast = (role: Role, needed: Role): boolean => ROLES.indexOf(role) >= ROLES.indexOf(needed);

/** Values of `env` are often credentials, so only roles that may change them see them. */
export const maySeeEnv = (role: Role): boolean => atLeast(role, 'developer');

export const lowerOf = (a: Role, b: Role): Role => (atLeast(a, b) ? b : a);
