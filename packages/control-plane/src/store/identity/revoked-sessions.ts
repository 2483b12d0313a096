import { DomainError } from '../../domain/platform/errors.ts';
import type { RevokedSessionStore } from '../../domain/identity/identity-stores.ts';
import type { Database } from '../engine/database.ts';
import { removeExpired } from '../sweep.ts';

/**
 * Maximum number of revocations of one person. Each one is a line in the policy of every gateway,
 * and each sign-out adds one. Beyond the limit, further sessions of this person stay valid until
 * they expire.
 */
const MAX_ENDED = 1_000;

export const createRevokedSessionStore = (db: Database): RevokedSessionStore => ({
  async revoke({ id, email, expires_at }, now) {
    const { ended } = await db.kysely
      .selectFrom('revoked_sessions')
      .select((eb) => eb.fn.countAll<number>().as('ended'))
      .where('email', '=', email.toLowerCase())
      .where('expires_at', '>', now)
      .executeTakeFirstOrThrow();
    if (ended >= MAX_ENDED) throw new DomainError('too_many_sessions');
    await db.writeOne((kysely) =>
      kysely
        .insertInto('revoked_sessions')
        .values({ id, email: email.toLowerCase(), revoked_at: now, expires_at })
        .onConflict((oc) => oc.column('id').doNothing())
        .execute(),
    );
  },
  async has(id) {
    const row = await db.kysely
      .selectFrom('revoked_sessions')
      .select('id')
      .where('id', '=', id)
      .executeTakeFirst();
    return row !== undefined;
  },

  sweep: (now) => removeExpired(db, 'revoked_sessions', now),
});
