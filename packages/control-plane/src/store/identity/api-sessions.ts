import { createHash } from 'node:crypto';
import type { ApiSessionRecord } from '../../domain/identity/identity-records.ts';
import type { ApiSessionStore, NewApiSession } from '../../domain/identity/identity-stores.ts';
import type { UserRecord } from '../../domain/platform/records.ts';
import type { Database } from '../engine/database.ts';
import { removeExpired } from '../sweep.ts';
import { userOf } from './users.ts';

/**
 * Maximum number of sessions of one user. If a script signs in on each run, its oldest sessions
 * end.
 */
const MAX_SESSIONS = 200;

/** The id is part of the tokens and therefore secret, so the database stores its SHA-256. */
const rowId = (id: string): string => createHash('sha256').update(id).digest('hex');
const DIGEST_LENGTH = 64;

export const createApiSessionStore = (db: Database): ApiSessionStore => ({
  create: (session, now, passwordHash) => createSession(db, session, now, passwordHash),
  find: (id, now) => findSession(db, id, now),
  async findStored(hash, now) {
    const row = await db.kysely
      .selectFrom('api_sessions')
      .innerJoin('users', 'users.id', 'api_sessions.user_id')
      .selectAll('users')
      .where('api_sessions.id', '=', hash)
      .where('api_sessions.expires_at', '>', now)
      .executeTakeFirst();
    return row === undefined ? null : userOf(row);
  },
  rotate: (id, hashes, expiresAt, now) => rotateSession(db, id, hashes, expiresAt, now),
  end: (id) => endSession(db, id),
  hashIds: () => hashIds(db),
  sweep: (now) => removeExpired(db, 'api_sessions', now),
});

async function createSession(
  db: Database,
  session: NewApiSession,
  now: number,
  passwordHash: string | null | undefined,
): Promise<boolean> {
  return db.write(async (tx) => {
    const user = await tx
      .selectFrom('users')
      .select(['disabled', 'password_hash'])
      .where('id', '=', session.user_id)
      // A concurrent change of the account waits for this transaction, and then ends the new
      // session.
      .$if(db.capabilities.rowLocks, (q) => q.forUpdate())
      .executeTakeFirst();
    if (user === undefined || user.disabled !== 0) return false;
    if (passwordHash !== undefined && user.password_hash !== passwordHash) return false;
    const surplus = await tx
      .selectFrom('api_sessions')
      .select('id')
      .where('user_id', '=', session.user_id)
      .orderBy('created_at', 'desc')
      .orderBy('id', 'desc')
      .limit(MAX_SESSIONS)
      .offset(MAX_SESSIONS - 1)
      .execute();
    if (surplus.length > 0)
      await tx
        .deleteFrom('api_sessions')
        .where(
          'id',
          'in',
          surplus.map((row) => row.id),
        )
        .execute();
    await tx
      .insertInto('api_sessions')
      .values({ ...session, id: rowId(session.id), created_at: now, refreshed_at: now })
      .execute();
    return true;
  });
}

async function findSession(
  db: Database,
  id: string,
  now: number,
): Promise<{ session: ApiSessionRecord; user: UserRecord } | null> {
  const row = await db.kysely
    .selectFrom('api_sessions')
    .innerJoin('users', 'users.id', 'api_sessions.user_id')
    .selectAll('users')
    .select([
      'api_sessions.created_at as session_created_at',
      'api_sessions.expires_at as session_expires_at',
    ])
    .where('api_sessions.id', '=', rowId(id))
    .where('api_sessions.expires_at', '>', now)
    .executeTakeFirst();
  if (row === undefined) return null;
  const { session_created_at: created_at, session_expires_at: expires_at, ...user } = row;
  return { session: { id, user_id: user.id, created_at, expires_at }, user: userOf(user) };
}

function rotateSession(
  db: Database,
  id: string,
  { old, next }: { old: string; next: string },
  expiresAt: number,
  now: number,
): Promise<'rotated' | 'reused' | 'unknown'> {
  return db.write(async (tx) => {
    const rotated = await tx
      .updateTable('api_sessions')
      .set({ refresh_hash: next, refreshed_at: now, expires_at: expiresAt })
      .where('id', '=', rowId(id))
      .where('refresh_hash', '=', old)
      .where('expires_at', '>', now)
      .returning('id')
      .executeTakeFirst();
    if (rotated !== undefined) return 'rotated';
    // The session exists but the token is not the current one: the owner or a thief has used it
    // before. So the session ends.
    const ended = await tx
      .deleteFrom('api_sessions')
      .where('id', '=', rowId(id))
      .returning('id')
      .executeTakeFirst();
    return ended === undefined ? 'unknown' : 'reused';
  });
}

async function endSession(db: Database, id: string): Promise<void> {
  await db.writeOne((kysely) =>
    kysely.deleteFrom('api_sessions').where('id', '=', rowId(id)).execute(),
  );
}

async function hashIds(db: Database): Promise<void> {
  const clear = await db.kysely
    .selectFrom('api_sessions')
    .select('id')
    .where((eb) => eb(eb.fn<number>('length', ['id']), '<', DIGEST_LENGTH))
    .execute();
  for (const { id } of clear)
    await db.writeOne((kysely) =>
      kysely
        .updateTable('api_sessions')
        .set({ id: rowId(id) })
        .where('id', '=', id)
        .execute(),
    );
}
