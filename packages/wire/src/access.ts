import { type Static, Type } from 'typebox';
import { Id, literals, orNull, ROLES, Time } from './vocabulary.ts';

export const Email = Type.String({ minLength: 3, maxLength: 254, pattern: '^[^@\\s]+@[^@\\s]+$' });

export const Login = Type.Object(
  { email: Email, password: Type.String({ minLength: 1, maxLength: 1024 }) },
  { additionalProperties: false },
);

export const User = Type.Object({
  id: Id,
  email: Type.String(),
  role: literals(ROLES),
  disabled: Type.Boolean(),
  last_login_at: orNull(Time),
});
export type User = Static<typeof User>;

/** `token` is a JWT (RFC 7519) for `Authorization: Bearer`; `expires_in` in seconds. */
export const LoginAnswer = Type.Object({
  token: Type.String(),
  token_type: Type.Literal('Bearer'),
  expires_in: Type.Integer(),
  user: User,
});
