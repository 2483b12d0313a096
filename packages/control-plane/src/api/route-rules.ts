/**
 * Rules that follow from a row of the route table, shared by the server (define.ts) and the OpenAPI
 * document.
 */
import type { Route, Who } from '@berth/wire/route';
import { ROLES, type Role } from '@berth/wire/vocabulary';

/**
 * Returns whether people call the route: with a role, not with the secret of an agent or gateway.
 */
export const isRole = (who: Who): who is Role => (ROLES as readonly string[]).includes(who);

/**
 * Returns whether the route creates a resource for a person. Such a request takes an
 * Idempotency-Key.
 */
export const takesIdempotencyKey = ({ method, status, who }: Route): boolean =>
  method === 'POST' && status === 201 && isRole(who);
