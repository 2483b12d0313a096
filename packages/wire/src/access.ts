/** Sign-in to the API: credentials and the tokens issued for them. */
import { type Static, Type } from 'typebox';
import { Email } from './email.ts';
import { User } from './user.ts';
import { literals } from './vocabulary.ts';

export const Login = Type.Object(
  { email: Email, password: Type.String({ minLength: 1, maxLength: 1024 }) },
  { additionalProperties: false },
);

/**
 * `token` is a JWT (RFC 7519) for `Authorization: Bearer`; `expires_in` is in seconds.
 * `refresh_token` can be exchanged once for the next pair. Both are empty if the request had the
 * header `X-Session: cookie`: the session is then a cookie that scripts cannot read. With
 * `X-Session-Account` (an e-mail address, percent-encoded) `exchange` signs in only this user.
 */
export const LoginAnswer = Type.Object({
  token: Type.String(),
  token_type: Type.Literal('Bearer'),
  expires_in: Type.Integer(),
  refresh_token: Type.String(),
  user: User,
});
export type LoginAnswer = Static<typeof LoginAnswer>;

/** Ways to sign in. `gateway`: through the identity provider, at `/_oauth/login`. */
export const AUTH_METHODS = ['gateway', 'password'] as const;
export const AuthMethods = Type.Object({ methods: Type.Array(literals(AUTH_METHODS)) });

export const Refresh = Type.Object(
  { refresh_token: Type.String({ minLength: 1, maxLength: 200 }) },
  { additionalProperties: false },
);
