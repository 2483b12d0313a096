/**
 * Personal API tokens, for programs that act on behalf of a person. The role of a token cannot
 * exceed the person's role.
 */
import { type Static, Type } from 'typebox';
import { Id, literals, orNull, ROLES, Time } from './vocabulary.ts';

/**
 * Prefix of every API token, so that secret scanners and people recognize it. Device tokens have
 * another prefix.
 */
export const API_TOKEN_PREFIX = 'berthpat_';

/** Maximum number of projects to which one token can be limited. */
export const MAX_TOKEN_PROJECTS = 100;

export const ApiToken = Type.Object({
  id: Id,
  user_id: Id,
  name: Type.String(),
  role: literals(ROLES),
  projects: orNull(
    Type.Array(Id, {
      description: 'ids of the only projects that the token may use; null: no limit',
    }),
  ),
  created_at: Time,
  expires_at: Time,
  /** Accurate to the minute. */
  last_used_at: orNull(Time),
});
export type ApiToken = Static<typeof ApiToken>;

export const ApiTokenCreate = Type.Object(
  {
    name: Type.String({ minLength: 1, maxLength: 100 }),
    role: literals(ROLES),
    projects: Type.Optional(
      orNull(
        Type.Array(Type.String({ minLength: 1, maxLength: 300 }), {
          minItems: 1,
          maxItems: MAX_TOKEN_PROJECTS,
          description:
            'ids or names of the only projects that the token may use; null or absent: no limit',
        }),
      ),
    ),
    /** At most one year from now. */
    expires_at: Time,
  },
  { additionalProperties: false },
);
/** `token` is shown only in this answer. */
export const ApiTokenCreated = Type.Object({ ...ApiToken.properties, token: Type.String() });
