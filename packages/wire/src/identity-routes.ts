/** Rows of the route table: signing in to the API, users, tokens, the audit log. */
import { Type } from 'typebox';
import { Login, LoginAnswer, Refresh } from './access.ts';
import { AUDIT_OUTCOMES, AuditEntry } from './audit.ts';
import { Email } from './email.ts';
import { DeviceToken } from './gateway.ts';
import { ById, type Route } from './route.ts';
import { ApiToken, ApiTokenCreate, ApiTokenCreated } from './token.ts';
import { PasswordChange, User, UserCreate, UserPatch } from './user.ts';
import { Id, listOf, literals, PageQuery, Time } from './vocabulary.ts';

export const IDENTITY_ROUTES = {
  login: {
    method: 'POST',
    path: '/api/auth/login',
    who: 'public',
    summary: 'Sign in with e-mail and password',
    body: Login,
    status: 200,
    answer: LoginAnswer,
  },
  exchange: {
    method: 'POST',
    path: '/api/auth/exchange',
    who: 'public',
    summary: 'Sign in with a device token (Bearer) or, behind svc-forward-auth, with the gateway’s assertion',
    status: 200,
    answer: LoginAnswer,
  },
  refresh: {
    method: 'POST',
    path: '/api/auth/refresh',
    who: 'public',
    summary: 'The next token and the next refresh token; one that comes a second time ends the session',
    body: Refresh,
    status: 200,
    answer: LoginAnswer,
  },
  logout: { method: 'POST', path: '/api/auth/logout', who: 'viewer', summary: 'End this session: its tokens are over', status: 204 },
  changePassword: {
    method: 'POST',
    path: '/api/auth/password',
    who: 'viewer',
    summary: 'Change one’s own password; ends all sessions of the account and begins a new one',
    body: PasswordChange,
    status: 200,
    answer: LoginAnswer,
  },
  me: { method: 'GET', path: '/api/auth/me', who: 'viewer', summary: 'Who the token belongs to', status: 200, answer: User },

  listUsers: {
    method: 'GET',
    path: '/api/users',
    who: 'admin',
    summary: 'All users, by address',
    query: Type.Object(PageQuery),
    status: 200,
    answer: listOf(User),
  },
  createUser: {
    method: 'POST',
    path: '/api/users',
    who: 'admin',
    summary: 'Make a user; without a password someone who signs in through the gateway',
    body: UserCreate,
    status: 201,
    answer: User,
  },
  getUser: {
    method: 'GET',
    path: '/api/users/:id',
    who: 'admin',
    summary: 'One user',
    params: ById,
    status: 200,
    answer: User,
  },
  patchUser: {
    method: 'PATCH',
    path: '/api/users/:id',
    who: 'admin',
    summary: 'Change role or password, disable or enable; disabling ends sessions and device tokens',
    params: ById,
    body: UserPatch,
    status: 200,
    answer: User,
  },
  deleteUser: {
    method: 'DELETE',
    path: '/api/users/:id',
    who: 'admin',
    summary: 'Delete a user with sessions and tokens',
    params: ById,
    status: 204,
  },

  listTokens: {
    method: 'GET',
    path: '/api/tokens',
    who: 'viewer',
    summary: 'One’s own personal API tokens; with `user_id`, for admins, another user’s',
    query: Type.Object({ ...PageQuery, user_id: Type.Optional(Id) }),
    status: 200,
    answer: listOf(ApiToken),
  },
  createToken: {
    method: 'POST',
    path: '/api/tokens',
    who: 'viewer',
    summary: 'Make a personal API token, shown this once; its role is never above its owner’s',
    body: ApiTokenCreate,
    status: 201,
    answer: ApiTokenCreated,
  },
  deleteToken: {
    method: 'DELETE',
    path: '/api/tokens/:id',
    who: 'viewer',
    summary: 'Revoke a personal API token: one’s own, for admins anybody’s',
    params: ById,
    status: 204,
  },
  listDeviceTokens: {
    method: 'GET',
    path: '/api/device-tokens',
    who: 'viewer',
    summary: 'One’s own device tokens; with `email` or `all`, for admins, other people’s',
    query: Type.Object({ ...PageQuery, email: Type.Optional(Email), all: Type.Optional(Type.Boolean()) }),
    status: 200,
    answer: listOf(DeviceToken),
  },
  deleteDeviceToken: {
    method: 'DELETE',
    path: '/api/device-tokens/:id',
    who: 'viewer',
    summary: 'Revoke a device token: one’s own, for admins anybody’s; gateways refuse it within 5 s',
    params: ById,
    status: 204,
  },
  audit: {
    method: 'GET',
    path: '/api/audit',
    who: 'admin',
    summary: 'Who did what, from where, when, and what came of it; newest first',
    query: Type.Object({
      ...PageQuery,
      user: Type.Optional(Type.String({ maxLength: 254, description: 'e-mail address' })),
      action: Type.Optional(Type.String({ maxLength: 64, description: 'a route’s name, signIn or signOut' })),
      target: Type.Optional(Type.String({ maxLength: 254, description: 'id (of a user: e-mail address) of what was changed' })),
      outcome: Type.Optional(literals(AUDIT_OUTCOMES)),
      since: Type.Optional(Time),
      until: Type.Optional(Time),
    }),
    status: 200,
    answer: listOf(AuditEntry),
  },
} as const satisfies Record<string, Route>;
