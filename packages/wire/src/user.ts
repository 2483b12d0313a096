/** Who may use the API, and as what. */
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

/** NIST SP 800-63B section 3.1.1.2: length is what counts. */
const Password = Type.String({ minLength: 10, maxLength: 1024 });

/** Without a password: someone who signs in through the gateway. */
export const UserCreate = Type.Object(
  { email: Email, role: literals(ROLES), password: Type.Optional(Password) },
  { additionalProperties: false },
);
export const UserPatch = Type.Object(
  {
    role: Type.Optional(literals(ROLES)),
    disabled: Type.Optional(Type.Boolean()),
    /** null: no sign-in with a password any more. */
    password: Type.Optional(orNull(Password)),
  },
  { additionalProperties: false, minProperties: 1 },
);
export type UserPatch = Static<typeof UserPatch>;

export const PasswordChange = Type.Object(
  { old_password: Type.String({ minLength: 1, maxLength: 1024 }), new_password: Password },
  { additionalProperties: false },
);
