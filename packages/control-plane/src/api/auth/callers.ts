/**
 * Authenticates people by the JWT of a session or by a personal API token, and gateways by their
 * shared secret. agents.ts authenticates agents.
 */
import type { Live } from '@berth/kit/live';
import type { Logger } from '@berth/kit/log';
import { API_TOKEN_PREFIX } from '@berth/wire/token';
import { LRUCache } from 'lru-cache';
import { lowerOf, type ProjectAccess } from '../../domain/identity/access.ts';
import type { ExecCredential } from '../../domain/exec/exec-sessions.ts';
import type { Changes } from '../../domain/platform/changes.ts';
import { DomainError, NoTokenSent } from '../../domain/platform/errors.ts';
import type { UserRecord } from '../../domain/platform/records.ts';
import { type Origin, isOriginValid, type OriginStores } from './origins.ts';
import { sha256Of } from './secrets.ts';
import { matcher } from './shared-secrets.ts';
import type { Tokens } from './tokens.ts';
import type { ApiTokenRecord } from '../../domain/identity/identity-records.ts';
import type { ApiSessionStore, ApiTokenStore } from '../../domain/identity/identity-stores.ts';

/**
 * Cache time of role, session and `disabled`. The store decides these, not the token. A disabled
 * user must lose access within 5 s.
 */
const TTL_MS = 2_000;
/**
 * Precision of `last_used_at` of a personal token: a write for each request would cost too much.
 */
const LAST_USED_PRECISION_MS = 60_000;

/**
 * The user with the rights of the credential: `role` is never higher than the role of a personal
 * token.
 */
export type Caller = UserRecord & {
  credential:
    | { kind: 'session'; id: string; origin: Origin | null }
    | { kind: 'api_token'; id: string; name: string };
  access: ProjectAccess;
};

/** Returns what is stored of a caller, to check the credential again later. */
export const storedCredential = ({ id: user_id, credential }: Caller): ExecCredential =>
  credential.kind === 'session'
    ? { user_id, kind: 'session', hash: sha256Of(credential.id), origin: credential.origin }
    : { user_id, ...credential };

export type Callers = {
  /** Returns the user of `Authorization`. Throws unauthenticated. */
  user(authorization: string | undefined): Promise<Caller>;
  /** Returns the user of a stored credential as of now; null if it has ended. */
  again(credential: ExecCredential): Promise<Caller | null>;
  /** Returns the value of GATEWAY_SECRET that the gateway sent. Throws gateway_secret. */
  gateway(secret: string | string[] | undefined): string;
};

export type Deps = OriginStores & {
  tokens: Tokens;
  apiSessions: Pick<ApiSessionStore, 'find' | 'findStored'>;
  apiTokens: Pick<ApiTokenStore, 'find' | 'findById' | 'used'>;
  changes: Pick<Changes, 'on'>;
  gatewaySecrets: Live<readonly string[]>;
  now: () => number;
  log: Logger;
};

const accessOf = (user: UserRecord, only: readonly string[] | null): ProjectAccess => ({
  userId: user.id,
  isAdmin: user.role === 'admin',
  only,
});

function callerOf({ token, user }: { token: ApiTokenRecord; user: UserRecord }): Caller {
  return {
    ...user,
    // A token that is limited to projects never acts as an admin.
    role: lowerOf(
      token.projects === null ? token.role : lowerOf(token.role, 'developer'),
      user.role,
    ),
    credential: { kind: 'api_token', id: token.id, name: token.name },
    access: accessOf(user, token.projects),
  };
}

export function createCallers(deps: Deps): Callers {
  const { apiSessions, apiTokens, now, log } = deps;
  const callerCache = new LRUCache<string, { caller: Caller; expiresAt: number }>({
    max: 2_000,
    ttl: TTL_MS,
  });
  deps.changes.on('access', () => callerCache.clear());
  const gatewaySecret = matcher(deps.gatewaySecrets);

  async function callerOfSession(id: string, origin: Origin | null): Promise<Caller | null> {
    const sessionAndUser = await apiSessions.find(id, now());
    if (
      sessionAndUser === null ||
      sessionAndUser.user.disabled ||
      !(await isOriginValid(deps, origin, now()))
    )
      return null;
    const caller: Caller = {
      ...sessionAndUser.user,
      credential: { kind: 'session', id, origin },
      access: accessOf(sessionAndUser.user, null),
    };
    callerCache.set(`session ${id}`, { caller, expiresAt: sessionAndUser.session.expires_at });
    return caller;
  }

  async function callerOfApiToken(hash: string): Promise<Caller | null> {
    const tokenAndUser = await apiTokens.find(hash, now());
    if (tokenAndUser === null || tokenAndUser.user.disabled) return null;
    const { token } = tokenAndUser;
    const caller = callerOf(tokenAndUser);
    callerCache.set(`token ${hash}`, { caller, expiresAt: token.expires_at });
    if (token.last_used_at === null || now() - token.last_used_at >= LAST_USED_PRECISION_MS)
      apiTokens
        .used(token.id, now())
        .catch((error: unknown) =>
          log.warn({ err: error, token: token.id }, 'last use of an API token not stored'),
        );
    return caller;
  }

  const cached = (key: string): Caller | null => {
    const entry = callerCache.get(key);
    return entry === undefined || entry.expiresAt <= now() ? null : entry.caller;
  };

  return {
    async user(authorization) {
      const token = /^Bearer +([\w.~+/=-]+) *$/i.exec(authorization ?? '')?.[1];
      if (token === undefined)
        throw authorization === undefined
          ? new NoTokenSent()
          : new DomainError('unauthenticated', 'send the token as “Authorization: Bearer …”');
      if (token.startsWith(API_TOKEN_PREFIX)) {
        const hash = sha256Of(token);
        const caller = cached(`token ${hash}`) ?? (await callerOfApiToken(hash));
        if (caller === null)
          throw new DomainError(
            'unauthenticated',
            'the token is unknown, has expired or was revoked, or its account is disabled',
          );
        return caller;
      }
      const claims = await deps.tokens.read(token);
      if (claims === null)
        throw new DomainError(
          'unauthenticated',
          'the token is invalid or has expired; sign in again',
        );
      const caller =
        cached(`session ${claims.sessionId}`) ??
        (await callerOfSession(claims.sessionId, claims.origin));
      if (caller === null || caller.id !== claims.userId)
        throw new DomainError(
          'unauthenticated',
          'the session has ended, or the account was deleted or disabled; sign in again',
        );
      return caller;
    },
    async again(credential) {
      if (credential.kind === 'api_token') {
        const tokenAndUser = await apiTokens.findById(credential.id, now());
        if (tokenAndUser === null || tokenAndUser.user.disabled) return null;
        return callerOf(tokenAndUser);
      }
      const { hash, origin } = credential;
      const user = await apiSessions.findStored(hash, now());
      if (user === null || user.disabled || !(await isOriginValid(deps, origin, now())))
        return null;
      const access = accessOf(user, null);
      return { ...user, credential: { kind: 'session', id: hash, origin }, access };
    },
    gateway(secret) {
      const value = gatewaySecret(secret);
      if (value === null) throw new DomainError('gateway_secret');
      return value;
    },
  };
}
