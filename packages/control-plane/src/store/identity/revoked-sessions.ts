import { DomainError } from '../../domain/platform/errors.ts';
import type { RevokedSessionStore } from '../../domain/identity/identity-stores.ts';
import type { Database } from '../engine/database.ts';
import { removeExpired } from '../sweep.ts';

/**
 * Revocations of one person. Each is a line in the policy of every gateway, and a person makes one
 * with each sign-out. Beyond the bound, only the person's own further sessions are not revoked
 * early.
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
