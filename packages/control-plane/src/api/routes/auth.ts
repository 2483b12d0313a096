/**
 * Sign-in at the API by password or by the gateway, refresh, sign-out and change of the password.
 */
import { DEVICE_TOKEN_PREFIX } from '@berth/wire/gateway';
import type { LoginAnswer } from '@berth/wire/access';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { createRefCounts, type RefCounts } from '@berth/kit/ref-count';
import { LRUCache } from 'lru-cache';
import { refuseDeletedSince } from '../../domain/identity/deleted-account.ts';
import { DomainError, invalid, NoTokenSent } from '../../domain/platform/errors.ts';
import type { UserRecord } from '../../domain/platform/records.ts';
import { type Assertions, SCOPE_NEEDED } from '../auth/assertions.ts';
import { type Attempts, networkOf } from '../auth/attempts.ts';
import type { Caller } from '../auth/callers.ts';
import type { Define, Call } from '../define.ts';
import { type Origin, isOriginValid, type OriginStores } from '../auth/origins.ts';
import type { Passwords } from '../auth/passwords.ts';
import { sha256Of } from '../auth/secrets.ts';
import { COOKIE_SECONDS, type SessionCookies } from '../auth/session-cookie.ts';
import type { SignIns } from '../auth/sign-ins.ts';
import { userView } from '../views.ts';
import { growingTo } from '../lru.ts';
import type { UserStore } from '../../domain/identity/user-store.ts';
import type { DeviceTokenStore, ApiSessionStore } from '../../domain/identity/identity-stores.ts';
import type { ApiSettings } from '../settings.ts';
import type { Changes } from '../../domain/platform/changes.ts';

/**
 * Maximum number of parallel tries from one network. Only two passwords are hashed at a time, so
 * one network must not occupy both places.
 */
const AT_ONCE = 16;

export type Deps = OriginStores & {
  /** Counts tries by account and network: one network cannot use up the tries of another. */
  signInAttempts: Attempts;
  passwords: Pick<Passwords, 'hash' | 'verify'>;
  /** Counts tries by network over all accounts. */
  strangerAttempts: Attempts;
  cookies: SessionCookies;
  signIns: Pick<SignIns, 'begin' | 'refresh'>;
  users: Pick<UserStore, 'create' | 'deletedAt' | 'findByEmail' | 'patch'>;
  deviceTokens: Pick<DeviceTokenStore, 'find'>;
  assertions: Pick<Assertions, 'read'>;
  apiSessions: Pick<ApiSessionStore, 'end'>;
  settings: Pick<ApiSettings, 'adminEmails' | 'authServiceUrl' | 'defaultRole'>;
  changes: Pick<Changes, 'notify'>;
  now: () => number;
};

/** State shared by all requests. */
type Context = Deps & {
  proven: LRUCache<string, true>;
  /** Number of strangers' tries that are being checked, by network. */
  underWay: RefCounts;
};

export function authRoutes(route: Define, deps: Deps): void {
  /**
   * Pairs of account and network that signed in before. A guesser in the same network does not
   * limit them.
   */
  const proven = new LRUCache<string, true>(growingTo(20_000));
  const underWay = createRefCounts();
  const context: Context = { ...deps, proven, underWay };
  route('authMethods', () => authMethods(deps));
  route('login', (call) => login(context, call));
  route('exchange', (call) => exchange(deps, call));
  route('refresh', (call) => refresh(deps, call));
  route('logout', (call) => logout(deps, call));
  route('changePassword', (call) => changePassword(context, call));
  route('me', async ({ user }) => userView(user));
}

/** Counts the try, then checks the password. Throws too_many_attempts, too_many_requests. */
async function tryPassword(
  context: Context,
  email: string,
  request: FastifyRequest,
  password: string,
  hash: string | null,
): Promise<boolean> {
  const network = networkOf(request.ip);
  const pair = `${network} ${email}`;
  context.signInAttempts.begin(pair);
  try {
    const verify = () => context.passwords.verify(password, hash);
    const right = await (context.proven.has(pair)
      ? verify()
      : asStranger(context, network, verify));
    if (!right) return false;
    context.signInAttempts.forgive(pair);
    context.proven.set(pair, true);
    return true;
  } catch (error) {
    // Do not count the try: the password was not checked.
    context.signInAttempts.takeBack(pair);
    throw error;
  }
}

/**
 * Limits the tries of a network over all accounts. Otherwise an attacker could try one password at
 * every account.
 */
async function asStranger(
  context: Context,
  network: string,
  verify: () => Promise<boolean>,
): Promise<boolean> {
  if (context.underWay.count(network) >= AT_ONCE) throw new DomainError('too_many_requests');
  context.strangerAttempts.begin(network);
  const finish = context.underWay.add(network);
  let counts = false;
  try {
    counts = !(await verify());
    return !counts;
  } finally {
    if (!counts) context.strangerAttempts.takeBack(network);
    finish();
  }
}

/** Begins a session. The token is in the answer, or in a cookie if the request wants one. */
async function begin(
  deps: Deps,
  user: UserRecord,
  origin: Origin | null,
  { request, reply }: { request: FastifyRequest; reply: FastifyReply },
): Promise<LoginAnswer> {
  if (!deps.cookies.isWanted(request)) return deps.signIns.begin(user, request.ip, origin);
  return deps.cookies.give(
    reply,
    await deps.signIns.begin(user, request.ip, origin, COOKIE_SECONDS),
  );
}

async function authMethods(deps: Deps) {
  return {
    methods:
      deps.settings.authServiceUrl === null
        ? ['password' as const]
        : ['gateway' as const, 'password' as const],
  };
}

async function login(context: Context, { body, request, reply }: Call<'login'>) {
  const email = body.email.toLowerCase();
  request.audited = { user: email };
  const user = await context.users.findByEmail(email);
  const right = await tryPassword(
    context,
    email,
    request,
    body.password,
    user?.password_hash ?? null,
  );
  // Give the same answer in all three cases: it must not reveal which accounts exist.
  if (user === null || !right || user.disabled) throw new DomainError('wrong_credentials');
  return begin(context, user, null, { request, reply });
}

async function exchange(deps: Deps, { request, reply }: Call<'exchange'>) {
  // Refuse other origins (Fetch Metadata, section 2.3): svc-forward-auth adds the visitor's
  // assertion to a POST from any page, including a page of a project.
  const from = request.headers['sec-fetch-site'];
  if (from === 'same-site' || from === 'cross-site')
    throw new DomainError('forbidden', 'a page of another origin must not sign in its visitor');
  const { email, origin, provenAt } = await identityOf(deps, request);
  deps.cookies.mustBeFor(request, email);
  request.audited = { user: email, via: 'gateway' };
  return begin(deps, await userFor(deps, email, provenAt), origin, { request, reply });
}

/**
 * Reads a device token or the gateway's assertion, never a bare identity header (docs/interfaces.md
 * "Identity in the API").
 */
async function identityOf(
  deps: Deps,
  request: FastifyRequest,
): Promise<{ email: string; origin: Origin | null; provenAt: number }> {
  const provenAt = deps.now();
  const { authorization } = request.headers;
  const assertion = request.headers['x-forwarded-user-assertion'];
  if (authorization !== undefined) {
    const token = /^Bearer +([\w-]+) *$/i.exec(authorization)?.[1];
    const deviceToken =
      token?.startsWith(DEVICE_TOKEN_PREFIX) === true
        ? await deps.deviceTokens.find(sha256Of(token), deps.now())
        : null;
    if (deviceToken === null)
      throw new DomainError(
        'unauthenticated',
        'the device token is unknown, has expired or was revoked: get another one at ' +
          '/_oauth/device/code',
      );
    // The person granted the scope `projects` for projects only, so this token must not open the
    // API.
    if (deviceToken.scope !== 'projects api')
      throw new DomainError('insufficient_scope', SCOPE_NEEDED);
    return {
      email: deviceToken.identity.email.toLowerCase(),
      origin: { kind: 'device_token', id: deviceToken.id },
      provenAt,
    };
  }
  if (typeof assertion === 'string' && assertion !== '') {
    const { email, madeAt, origin } = await deps.assertions.read(assertion);
    refuseDeletedSince(await deps.users.deletedAt(email), madeAt);
    if (!(await isOriginValid(deps, origin, deps.now())))
      throw new DomainError(
        'unauthenticated',
        'the session or device token of this assertion has ended; sign in again',
      );
    return { email, origin, provenAt: madeAt };
  }
  throw new NoTokenSent(
    'send a device token, or send the request through the proxy with a session',
  );
}

/**
 * Finds the person's account, or creates one with the role of the settings. Throws no_role,
 * account_disabled, unauthenticated.
 */
async function userFor(deps: Deps, email: string, provenAt: number): Promise<UserRecord> {
  const existingUser = await deps.users.findByEmail(email);
  if (existingUser?.disabled === true) throw new DomainError('account_disabled');
  if (existingUser !== null) return existingUser;
  const role = deps.settings.adminEmails.includes(email) ? 'admin' : deps.settings.defaultRole;
  if (role === null)
    throw new DomainError(
      'no_role',
      `${email} has no account and DEFAULT_ROLE is not set; an admin can create an account ` +
        '(POST /api/users)',
    );
  try {
    return await deps.users.create({ email, role, password_hash: null }, deps.now(), provenAt);
  } catch (error) {
    // Another exchange created the account at the same moment.
    const other = await deps.users.findByEmail(email);
    if (other !== null && !other.disabled) return other;
    throw error;
  }
}

async function refresh(deps: Deps, { body, request }: Call<'refresh'>) {
  const { answer, reusedBy } = await deps.signIns.refresh(body.refresh_token);
  if (answer !== null) return answer;
  if (reusedBy !== null) request.audited = { user: reusedBy };
  throw new DomainError(
    'refresh_token',
    reusedBy === null ? undefined : 'it was used before, so the session has ended: sign in again',
  );
}

async function logout(deps: Deps, { user, reply }: Call<'logout'>) {
  await deps.apiSessions.end(sessionOnly(user));
  deps.cookies.clear(reply);
  deps.changes.notify('access');
}

async function changePassword(
  context: Context,
  { body, user, request, reply }: Call<'changePassword'>,
) {
  sessionOnly(user);
  const right = await tryPassword(
    context,
    user.email,
    request,
    body.old_password,
    user.password_hash,
  );
  const wrong = (): Error => invalid('old_password', 'wrong', 'is not your current password');
  if (!right) throw wrong();
  const password_hash = await context.passwords.hash(body.new_password);
  // A new password ends every session of the account, including this one.
  const changed = await context.users.patch(user.id, { password_hash }, (present) => {
    // Refuse if the password of the account changed during the check, for example because the
    // checked password has leaked.
    if (present.password_hash !== user.password_hash) throw wrong();
  });
  context.changes.notify('access');
  return begin(context, changed, null, { request, reply });
}

/**
 * Refuses personal tokens, because a token that creates sessions or tokens could outlive its own
 * expiry. Returns the id of the session.
 */
export function sessionOnly(user: Caller): string {
  if (user.credential.kind !== 'session')
    throw new DomainError(
      'forbidden',
      'a personal API token cannot do this: sign in with a password or through the gateway',
    );
  return user.credential.id;
}
