/**
 * Rules that follow from a row of the route table. The server (define.ts) and the OpenAPI document
 * share them.
 */
import type { Route, Who } from '@berth/wire/route';
import { ROLES, type Role } from '@berth/wire/vocabulary';

/** True if people call the route: with a role and not with the secret of an agent or gateway. */
export const isRole = (who: Who): who is Role => (ROLES as readonly string[]).includes(who);

/** True if the route creates a resource for a person. Such a request takes an Idempotency-Key. */
export const takesIdempotencyKey = ({ method, status, who }: Route): boolean =>
  method === 'POST' && status === 201 && isRole(who);
