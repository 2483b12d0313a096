import { DomainError } from '../../domain/errors.ts';
import type { ApiTokenRecord } from '../../domain/identity-records.ts';
import type { ApiTokenStore } from '../../domain/identity-stores.ts';
import type { Database } from '../engine/database.ts';
import { keyAfter, paged } from '../pages.ts';
import { removeEnded } from '../sweep.ts';
import type { Row } from '../engine/tables.ts';
import { userOf } from './users.ts';

/** Valid tokens of one user. */
const MAX_TOKENS = 100;

const tokenOf = ({ hash: _, ...row }: Row<'api_tokens'>): ApiTokenRecord => row;

export const createApiTokenStore = (db: Database): ApiTokenStore => ({
  create(token, now) {
    return db.write(async (tx) => {
      await db.capabilities.holdName(tx, `api-tokens:${token.user_id}`);
      const { tokens } = await tx
        .selectFrom('api_tokens')
        .select((eb) => eb.fn.countAll<number>().as('tokens'))
        .where('user_id', '=', token.user_id)
        .where('expires_at', '>', now)
        .executeTakeFirstOrThrow();
      if (tokens >= MAX_TOKENS) throw new DomainError('too_many_tokens');
      const row = { ...token, created_at: now, last_used_at: null };
      return tokenOf(await tx.insertInto('api_tokens').values(row).returningAll().executeTakeFirstOrThrow());
    });
  },

  async find(hash, now) {
    const row = await db.kysely
      .selectFrom('api_tokens')
      .selectAll()
      .where('hash', '=', hash)
      .where('expires_at', '>', now)
      .executeTakeFirst();
    if (row === undefined) return null;
    const user = await db.kysely.selectFrom('users').selectAll().where('id', '=', row.user_id).executeTakeFirst();
    return user === undefined ? null : { token: tokenOf(row), user: userOf(user) };
  },

  async list(userId, now, page) {
    const after = keyAfter(page.cursor, ['number', 'string']);
    let query = db.kysely.selectFrom('api_tokens').selectAll().where('user_id', '=', userId).where('expires_at', '>', now);
    if (after !== null) query = query.where((eb) => eb(eb.refTuple('created_at', 'id'), '<', eb.tuple(after[0], after[1])));
    const rows = await query
      .orderBy('created_at', 'desc')
      .orderBy('id', 'desc')
      .limit(page.limit + 1)
      .execute();
    return paged(rows, page, (row) => [row.created_at, row.id], tokenOf);
  },

  async revoke(id, userId) {
    const gone = await db.writeOne((kysely) =>
      kysely
        .deleteFrom('api_tokens')
        .where('id', '=', id)
        .$if(userId !== null, (q) => q.where('user_id', '=', userId ?? ''))
        .returning('id')
        .executeTakeFirst(),
    );
    if (gone === undefined) throw new DomainError('not_found', `There is no token with the id ${id}`);
  },

  async used(id, at) {
    await db.writeOne((kysely) => kysely.updateTable('api_tokens').set({ last_used_at: at }).where('id', '=', id).execute());
  },

  sweep: (now) => removeEnded(db, 'api_tokens', now),
});
