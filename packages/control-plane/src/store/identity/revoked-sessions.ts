import { DomainError } from '../../domain/errors.ts';
import type { RevokedSessionStore } from '../../domain/identity-stores.ts';
import type { Database } from '../engine/database.ts';
import { removeEnded } from '../sweep.ts';

/** Of one person: each is a line of every gateway's policy, and signing in and out makes as many as one likes. Only his own last ones are then not ended early. */
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
    const row = await db.kysely.selectFrom('revoked_sessions').select('id').where('id', '=', id).executeTakeFirst();
    return row !== undefined;
  },

  sweep: (now) => removeEnded(db, 'revoked_sessions', now),
});
