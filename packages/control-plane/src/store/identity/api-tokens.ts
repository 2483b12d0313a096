import { DomainError } from '../../domain/platform/errors.ts';
import type { ApiTokenRecord } from '../../domain/identity/identity-records.ts';
import type { ApiTokenStore } from '../../domain/identity/identity-stores.ts';
import type { UserRecord } from '../../domain/platform/records.ts';
import type { Database } from '../engine/database.ts';
import { newestFirst } from '../pages.ts';
import { removeExpired } from '../sweep.ts';
import type { Row } from '../engine/tables.ts';
import { countTokens, deleteToken } from './tokens.ts';
import { userOf } from './users.ts';

/** Maximum number of valid tokens of one user. */
const MAX_TOKENS = 100;

const tokenOf = ({ hash: _, projects, ...row }: Row<'api_tokens'>): ApiTokenRecord => ({
  ...row,
  projects: projects === null ? null : (JSON.parse(projects) as string[]),
});

export const createApiTokenStore = (db: Database): ApiTokenStore => ({
  create(token, now) {
    return db.write(async (tx) => {
      await db.capabilities.lockName(tx, `api-tokens:${token.user_id}`);
      if ((await countTokens(tx, 'api_tokens', now, token.user_id)) >= MAX_TOKENS)
        throw new DomainError('too_many_tokens');
      const { projects } = token;
      const row = {
        ...token,
        projects: projects === null ? null : JSON.stringify(projects),
        created_at: now,
        last_used_at: null,
      };
      return tokenOf(
        await tx.insertInto('api_tokens').values(row).returningAll().executeTakeFirstOrThrow(),
      );
    });
  },

  find: (hash, now) => findToken(db, { hash }, now),
  findById: (id, now) => findToken(db, { id }, now),

  list(userId, now, page) {
    const query = db.kysely
      .selectFrom('api_tokens')
      .selectAll()
      .where('user_id', '=', userId)
      .where('expires_at', '>', now);
    return newestFirst(query, page, tokenOf);
  },

  revoke: (id, userId) => deleteToken(db, 'api_tokens', id, userId),

  async used(id, at) {
    await db.writeOne((kysely) =>
      kysely.updateTable('api_tokens').set({ last_used_at: at }).where('id', '=', id).execute(),
    );
  },

  sweep: (now) => removeExpired(db, 'api_tokens', now),
});

async function findToken(
  db: Database,
  by: { hash: string } | { id: string },
  now: number,
): Promise<{ token: ApiTokenRecord; user: UserRecord } | null> {
  const row = await db.kysely
    .selectFrom('api_tokens')
    .selectAll()
    .where((eb) => eb.and(by))
    .where('expires_at', '>', now)
    .executeTakeFirst();
  if (row === undefined) return null;
  const user = await db.kysely
    .selectFrom('users')
    .selectAll()
    .where('id', '=', row.user_id)
    .executeTakeFirst();
  return user === undefined ? null : { token: tokenOf(row), user: userOf(user) };
}
