import { DomainError } from '../../domain/errors.ts';
import type { UsedCodeStore } from '../../domain/identity-stores.ts';
import type { Database } from '../engine/database.ts';
import { removeEnded } from '../sweep.ts';

/** The gateway's clock may be behind ours by so much: a code that it still takes is remembered as long. */
const SKEW_MS = 5 * 60_000;

export const createUsedCodeStore = (db: Database): UsedCodeStore => ({
  async redeem({ id, expires_at }, now) {
    // What was swept could be taken a second time, were it not refused for its age.
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
  sweep: (now) => removeEnded(db, 'used_codes', now - SKEW_MS),
});
