/** Who makes a request: people by their token, agents by the shared secret. */
import { hash, timingSafeEqual } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import { DomainError } from '../domain/errors.ts';
import type { UserRecord } from '../domain/records.ts';
import type { UserStore } from '../domain/stores.ts';
import type { Tokens } from './tokens.ts';

/** Role and `disabled` are the store's, not the token's, and at most this old: a disabled user is out within 5 s. */
const USER_TTL_MS = 2_000;

export type Callers = {
  /** The user that `Authorization` speaks for. Throws unauthenticated. */
  user(authorization: string | undefined): Promise<UserRecord>;
  /** Throws agent_secret. */
  agent(secret: string | string[] | undefined): void;
};

export function createCallers(deps: { tokens: Tokens; users: UserStore; agentSecrets: readonly string[] }): Callers {
  const known = new LRUCache<string, UserRecord>({ max: 1_000, ttl: USER_TTL_MS });
  // Digests have one length, whatever the secrets' are: the comparison tells nothing by its time.
  const secrets = deps.agentSecrets.map(digest);

  async function userOf(id: string): Promise<UserRecord | null> {
    const cached = known.get(id);
    if (cached !== undefined) return cached;
    try {
      const user = await deps.users.get(id);
      known.set(id, user);
      return user;
    } catch (error) {
      if (error instanceof DomainError && error.code === 'not_found') return null;
      throw error;
    }
  }

  return {
    async user(authorization) {
      const token = /^Bearer +([\w.~+/=-]+) *$/i.exec(authorization ?? '')?.[1];
      if (token === undefined)
        throw new DomainError(
          'unauthenticated',
          authorization === undefined ? 'no token was sent' : 'send the token as “Authorization: Bearer …”',
        );
      const read = await deps.tokens.read(token);
      if (read === null) throw new DomainError('unauthenticated', 'the token is not valid or has expired');
      const user = await userOf(read.userId);
      if (user === null || user.disabled) throw new DomainError('unauthenticated', 'the account is gone or disabled');
      return user;
    },
    agent(secret) {
      if (secrets.length === 0) return;
      const given = digest(typeof secret === 'string' ? secret : '');
      // All are compared, so that the time does not tell which one it was.
      if (secrets.filter((s) => timingSafeEqual(s, given)).length === 0) throw new DomainError('agent_secret');
    },
  };
}

const digest = (text: string): Buffer => hash('sha256', text, 'buffer');
