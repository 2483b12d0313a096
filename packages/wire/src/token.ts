/** Personal API tokens, for programs that act for a person. The role of a token cannot exceed the person's role. */
import { type Static, Type } from 'typebox';
import { Id, literals, orNull, ROLES, Time } from './vocabulary.ts';

/** Prefix of every API token, so that secret scanners and people recognize it. Device tokens have another prefix. */
export const API_TOKEN_PREFIX = 'berthpat_';

export const ApiToken = Type.Object({
  id: Id,
  user_id: Id,
  name: Type.String(),
  role: literals(ROLES),
  created_at: Time,
  expires_at: Time,
  /** Exact to the minute. */
  last_used_at: orNull(Time),
});
export type ApiToken = Static<typeof ApiToken>;

export const ApiTokenCreate = Type.Object(
  {
    name: Type.String({ minLength: 1, maxLength: 100 }),
    role: literals(ROLES),
    /** At most one year from now. */
    expires_at: Time,
  },
  { additionalProperties: false },
);
/** `token` is shown only in this answer. */
export const ApiTokenCreated = Type.Object({ ...ApiToken.properties, token: Type.String() });
