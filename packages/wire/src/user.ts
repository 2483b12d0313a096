/** The users of the API and their roles. */
import { type Static, Type } from 'typebox';
import { Email } from './email.ts';
import { Id, literals, orNull, ROLES, Time } from './vocabulary.ts';

export const User = Type.Object({
  id: Id,
  email: Type.String(),
  role: literals(ROLES),
  disabled: Type.Boolean(),
  last_login_at: orNull(Time),
});
export type User = Static<typeof User>;

/**
 * Length of a password in characters. NIST SP 800-63B section 3.1.1.2: require length, not special
 * characters.
 */
export const PASSWORD_LENGTH = { min: 10, max: 1024 } as const;
export const Password = Type.String({
  minLength: PASSWORD_LENGTH.min,
  maxLength: PASSWORD_LENGTH.max,
});

/** A user without a password signs in through the gateway. */
export const UserCreate = Type.Object(
  { email: Email, role: literals(ROLES), password: Type.Optional(Password) },
  { additionalProperties: false },
);
export const UserPatch = Type.Object(
  {
    role: Type.Optional(literals(ROLES)),
    disabled: Type.Optional(Type.Boolean()),
    /** null removes the password, so the user can sign in only through the gateway. */
    password: Type.Optional(orNull(Password)),
  },
  { additionalProperties: false, minProperties: 1 },
);
export type UserPatch = Static<typeof UserPatch>;

export const PasswordChange = Type.Object(
  { old_password: Type.String({ minLength: 1, maxLength: 1024 }), new_password: Password },
  { additionalProperties: false },
);
