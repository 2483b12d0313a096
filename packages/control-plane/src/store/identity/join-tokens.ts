/**
 * Join tokens for new machines (docs/interfaces.md "Joining"): each is valid for one machine and
 * one role, and expires.
 */
import type { JoinTokenStore } from '../../domain/nodes/join-stores.ts';
import { DomainError } from '../../domain/platform/errors.ts';
import type { JoinTokenRecord } from '../../domain/platform/records.ts';
import type { Database } from '../engine/database.ts';
import type { Row, Tx } from '../engine/tables.ts';
import { newestFirst } from '../pages.ts';
import { removeExpired } from '../sweep.ts';
import { countTokens, deleteToken } from './tokens.ts';

const MAX_TOKENS = 1_000;

const tokenOf = ({ hash: _hash, boot_id: _boot, ...row }: Row<'join_tokens'>): JoinTokenRecord =>
  row;

export const createJoinTokenStore = (db: Database): JoinTokenStore => ({
  create(token, now) {
    return db.write(async (tx) => {
      await db.capabilities.lockName(tx, 'join-tokens');
      if ((await countTokens(tx, 'join_tokens', now, null)) >= MAX_TOKENS)
        throw new DomainError(
          'too_many_tokens',
          `the limit of ${MAX_TOKENS} join tokens is reached; delete some first`,
        );
      const row = { ...token, created_at: now, used_at: null, boot_id: null, node_id: null };
      return tokenOf(
        await tx.insertInto('join_tokens').values(row).returningAll().executeTakeFirstOrThrow(),
      );
    });
  },

  list: (now, page) =>
    newestFirst(
      db.kysely.selectFrom('join_tokens').selectAll().where('expires_at', '>', now),
      page,
      tokenOf,
    ),

  remove: (id) => deleteToken(db, 'join_tokens', id, null),

  async storedHashOf(id) {
    const row = await db.kysely
      .selectFrom('join_tokens')
      .select('hash')
      .where('id', '=', id)
      .executeTakeFirst();
    return row?.hash ?? null;
  },

  sweep: (now) => removeExpired(db, 'join_tokens', now),
});

/**
 * Marks the token as used by an agent process (`boot_id`) for a node. The same process can use it
 * again, because the answer to its first request might have been lost. The write locks the row, so
 * a concurrent use by another process throws.
 */
export async function useJoinToken(
  tx: Tx,
  id: string,
  by: { boot_id: string | null; node_id: string },
  at: number,
): Promise<void> {
  const used = await tx
    .updateTable('join_tokens')
    .set({ used_at: at, ...by })
    .where('id', '=', id)
    .where((eb) => eb.or([eb('used_at', 'is', null), eb('boot_id', '=', by.boot_id)]))
    .returning('id')
    .executeTakeFirst();
  if (used === undefined) throw new DomainError('agent_secret');
}
