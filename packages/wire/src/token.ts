/** Personal API tokens: for programs that act for a person, with a role no higher than that person's. */
import { type Static, Type } from 'typebox';
import { Id, literals, orNull, ROLES, Time } from './vocabulary.ts';

/** What every one begins with, so that scanners and people know it; device tokens begin otherwise. */
export const API_TOKEN_PREFIX = 'berthpat_';

export const ApiToken = Type.Object({
  id: Id,
  user_id: Id,
  name: Type.String(),
  role: literals(ROLES),
  created_at: Time,
  expires_at: Time,
  /** To the minute. */
  last_used_at: orNull(Time),
});
export type ApiToken = Static<typeof ApiToken>;

export const ApiTokenCreate = Type.Object(
  {
    name: Type.String({ minLength: 1, maxLength: 100 }),
    role: literals(ROLES),
    /** At most a year from now. */
    expires_at: Time,
  },
  { additionalProperties: false },
);
/** `token` is shown this once. */
export const ApiTokenCreated = Type.Object({ ...ApiToken.properties, token: Type.String() });
