import { DomainError } from '../../domain/platform/errors.ts';
import type { UsedCodeStore } from '../../domain/identity/identity-stores.ts';
import type { Database } from '../engine/database.ts';
import { removeExpired } from '../sweep.ts';

/**
 * Tolerance for a gateway with a slow clock: a used code is kept for as long as such a gateway
 * accepts it.
 */
const SKEW_MS = 5 * 60_000;

export const createUsedCodeStore = (db: Database): UsedCodeStore => ({
  async redeem({ id, expires_at }, now) {
    // Refuses the code because of its age: the row of its first use might have been removed
    // already.
    if (expires_at + SKEW_MS <= now) throw new DomainError('code_used');
    const taken = await db.writeOne((kysely) =>
      kysely
        .insertInto('used_codes')
        .values({ id, expires_at })
        .onConflict((oc) => oc.column('id').doNothing())
        .returning('id')
        .executeTakeFirst(),
    );
    if (taken === undefined) throw new DomainError('code_used');
  },
  sweep: (now) => removeExpired(db, 'used_codes', now - SKEW_MS),
});
