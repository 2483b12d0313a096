/** Rows of the route table: sign-in to the API, users, tokens, audit log. */
import { Type } from 'typebox';
import { AuthMethods, Login, LoginAnswer, Refresh } from './access.ts';
import { AUDIT_OUTCOMES, AuditEntry } from './audit.ts';
import { Email } from './email.ts';
import { DeviceToken } from './gateway.ts';
import { ById, type Route } from './route.ts';
import { ApiToken, ApiTokenCreate, ApiTokenCreated } from './token.ts';
import { PasswordChange, User, UserCreate, UserPatch } from './user.ts';
import { Id, listOf, literals, PageQuery, Time } from './vocabulary.ts';

export const IDENTITY_ROUTES = {
  authMethods: {
    method: 'GET',
    path: '/api/auth/methods',
    who: 'public',
    scope: 'none',
    summary: 'List the ways to sign in',
    status: 200,
    answer: AuthMethods,
  },
  login: {
    method: 'POST',
    path: '/api/auth/login',
    who: 'public',
    scope: 'none',
    summary: 'Sign in with an e-mail address and a password',
    body: Login,
    status: 200,
    answer: LoginAnswer,
  },
  exchange: {
    method: 'POST',
    path: '/api/auth/exchange',
    who: 'public',
    scope: 'none',
    summary:
      'Sign in with a device token (Bearer) or, behind svc-forward-auth, with the assertion of ' +
      'the gateway',
    status: 200,
    answer: LoginAnswer,
  },
  refresh: {
    method: 'POST',
    path: '/api/auth/refresh',
    who: 'public',
    scope: 'none',
    summary:
      'Exchange a refresh token for the next pair of tokens; reuse of a refresh token ends the ' +
      'session',
    body: Refresh,
    status: 200,
    answer: LoginAnswer,
  },
  logout: {
    method: 'POST',
    path: '/api/auth/logout',
    who: 'viewer',
    scope: 'none',
    summary: 'End this session and invalidate its tokens',
    status: 204,
  },
  changePassword: {
    method: 'POST',
    path: '/api/auth/password',
    who: 'viewer',
    scope: 'none',
    summary: 'Change your own password; ends all sessions of the account and starts a new one',
    body: PasswordChange,
    status: 200,
    answer: LoginAnswer,
  },
  me: {
    method: 'GET',
    path: '/api/auth/me',
    who: 'viewer',
    scope: 'none',
    summary: 'Get the user of the token',
    status: 200,
    answer: User,
  },

  listUsers: {
    method: 'GET',
    path: '/api/users',
    who: 'admin',
    scope: 'none',
    summary: 'List all users by e-mail address',
    query: Type.Object(PageQuery),
    status: 200,
    answer: listOf(User),
  },
  createUser: {
    method: 'POST',
    path: '/api/users',
    who: 'admin',
    scope: 'none',
    summary: 'Create a user; a user without a password signs in through the gateway',
    body: UserCreate,
    status: 201,
    answer: User,
    etag: true,
  },
  getUser: {
    method: 'GET',
    path: '/api/users/:id',
    who: 'admin',
    scope: 'none',
    summary: 'Get a user',
    params: ById,
    status: 200,
    answer: User,
    etag: true,
  },
  patchUser: {
    method: 'PATCH',
    path: '/api/users/:id',
    who: 'admin',
    scope: 'none',
    summary:
      'Change the role or the password of a user, or disable or enable the user; disabling ' +
      'ends sessions and device tokens',
    params: ById,
    body: UserPatch,
    status: 200,
    answer: User,
    etag: true,
    locked: true,
  },
  deleteUser: {
    method: 'DELETE',
    path: '/api/users/:id',
    who: 'admin',
    scope: 'none',
    summary: 'Delete a user and the user’s sessions and tokens',
    params: ById,
    status: 204,
    locked: true,
  },

  listTokens: {
    method: 'GET',
    path: '/api/tokens',
    who: 'viewer',
    scope: 'none',
    summary: 'List your personal API tokens; admins can list those of another user with `user_id`',
    query: Type.Object({ ...PageQuery, user_id: Type.Optional(Id) }),
    status: 200,
    answer: listOf(ApiToken),
  },
  createToken: {
    method: 'POST',
    path: '/api/tokens',
    who: 'viewer',
    scope: 'none',
    summary:
      'Create a personal API token; the secret is shown only once, and the role cannot exceed ' +
      'the owner’s role',
    body: ApiTokenCreate,
    status: 201,
    answer: ApiTokenCreated,
  },
  deleteToken: {
    method: 'DELETE',
    path: '/api/tokens/:id',
    who: 'viewer',
    scope: 'none',
    summary: 'Revoke one of your personal API tokens; admins can revoke any',
    params: ById,
    status: 204,
  },
  listDeviceTokens: {
    method: 'GET',
    path: '/api/device-tokens',
    who: 'viewer',
    scope: 'none',
    summary: 'List your device tokens; admins can list those of others with `email` or `all`',
    query: Type.Object({
      ...PageQuery,
      email: Type.Optional(Email),
      all: Type.Optional(Type.Boolean()),
    }),
    status: 200,
    answer: listOf(DeviceToken),
  },
  deleteDeviceToken: {
    method: 'DELETE',
    path: '/api/device-tokens/:id',
    who: 'viewer',
    scope: 'none',
    summary:
      'Revoke one of your device tokens; admins can revoke any; gateways refuse it within 5 s',
    params: ById,
    status: 204,
  },
  audit: {
    method: 'GET',
    path: '/api/audit',
    who: 'admin',
    scope: 'list',
    summary: 'List the audit log, newest first: actor, action, target, address and outcome',
    query: Type.Object({
      ...PageQuery,
      user: Type.Optional(Type.String({ maxLength: 254, description: 'e-mail address' })),
      action: Type.Optional(
        Type.String({ maxLength: 64, description: 'name of a route, `signIn` or `signOut`' }),
      ),
      target: Type.Optional(
        Type.String({
          maxLength: 254,
          description: 'id of the changed resource; for a user the e-mail address',
        }),
      ),
      outcome: Type.Optional(literals(AUDIT_OUTCOMES)),
      since: Type.Optional(Time),
      until: Type.Optional(Time),
    }),
    status: 200,
    answer: listOf(AuditEntry),
  },
} as const satisfies Record<string, Route>;
