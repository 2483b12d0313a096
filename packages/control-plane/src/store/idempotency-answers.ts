/**
 * Stored answers for an Idempotency-Key (table `kept_answers`). A request claims its row, runs, and
 * stores its answer in the row. While it runs, it renews its claim. If the claim is not renewed,
 * the next request with the same key takes it over.
 */
import type { AnswerClaim, IdempotencyAnswerStore } from '../domain/identity/identity-stores.ts';
import type { Database } from './engine/database.ts';
import { removeExpired } from './sweep.ts';

/** Limits for one user. */
const MAX_ROWS = 1_000;
const MAX_BYTES = 16 * 1_048_576;

export const createIdempotencyAnswerStore = (db: Database): IdempotencyAnswerStore => ({
  begin: (claim, now) => claimKey(db, claim, now),
  renew: (claim, claimedUntil) => renewKey(db, claim, claimedUntil),
  keep: (claim, answer) => keepAnswer(db, claim, answer),
  giveUp: (claim) => releaseKey(db, claim),
  sweep: (now) => removeExpired(db, 'kept_answers', now),
});

function claimKey(
  db: Database,
  {
    user_id,
    request,
    body_hash,
    isSameBody = (stored) => stored === body_hash,
    claim,
    claimed_until,
    expires_at,
    abandoned,
  }: AnswerClaim & {
    body_hash: string;
    isSameBody?: (stored: string) => boolean;
    claimed_until: number;
    expires_at: number;
    abandoned?: string | null;
  },
  now: number,
): Promise<
  | { kind: 'claimed' }
  | { kind: 'in_progress'; renewed: string | null }
  | { kind: 'other_body' }
  | { kind: 'stored'; answer: Buffer }
> {
  return db.write(async (tx) => {
    const query = tx
      .selectFrom('kept_answers')
      .where('user_id', '=', user_id)
      .where('request', '=', request);
    await tx
      .deleteFrom('kept_answers')
      .where('user_id', '=', user_id)
      .where('request', '=', request)
      .where('expires_at', '<=', now)
      .execute();
    const inserted = await tx
      .insertInto('kept_answers')
      .values({
        user_id,
        request,
        body_hash,
        claim,
        claimed_until,
        answer: null,
        bytes: 0,
        created_at: now,
        expires_at,
      })
      .onConflict((oc) => oc.columns(['user_id', 'request']).doNothing())
      .returning('claim')
      .executeTakeFirst();
    if (inserted !== undefined) return { kind: 'claimed' };
    const row = await query
      .selectAll()
      .$if(db.capabilities.rowLocks, (q) => q.forUpdate())
      .executeTakeFirst();
    // The other request gave up its claim just now; the caller tries again.
    if (row === undefined) return { kind: 'in_progress', renewed: null };
    if (!isSameBody(row.body_hash)) return { kind: 'other_body' };
    if (row.answer !== null) return { kind: 'stored', answer: row.answer };
    const renewed = `${row.claim} ${row.claimed_until}`;
    if ((row.claimed_until ?? 0) > now && renewed !== abandoned)
      return { kind: 'in_progress', renewed };
    await tx
      .updateTable('kept_answers')
      .set({ claim, claimed_until, expires_at })
      .where('user_id', '=', user_id)
      .where('request', '=', request)
      .execute();
    return { kind: 'claimed' };
  });
}

async function renewKey(
  db: Database,
  { user_id, request, claim }: AnswerClaim,
  claimedUntil: number,
): Promise<void> {
  // After a crash a claim is useless, so this write does not wait for the disk.
  await db.writeOne((kysely) =>
    db.capabilities.unsynced(kysely, (one) =>
      one
        .updateTable('kept_answers')
        .set({ claimed_until: claimedUntil })
        .where('user_id', '=', user_id)
        .where('request', '=', request)
        .where('claim', '=', claim)
        .execute(),
    ),
  );
}

async function keepAnswer(
  db: Database,
  { user_id, request, claim }: AnswerClaim,
  answer: Buffer,
): Promise<void> {
  await db.write(async (tx) => {
    await tx
      .updateTable('kept_answers')
      .set({ answer, bytes: answer.length, claim: null, claimed_until: null })
      .where('user_id', '=', user_id)
      .where('request', '=', request)
      .where('claim', '=', claim)
      .execute();
    const kept = await tx
      .selectFrom('kept_answers')
      .select((eb) => [
        eb.fn.countAll<number>().as('rows'),
        eb.fn.sum<number | string>('bytes').as('bytes'),
      ])
      .where('user_id', '=', user_id)
      .executeTakeFirstOrThrow();
    if (kept.rows <= MAX_ROWS && Number(kept.bytes) <= MAX_BYTES) return;
    const rows = await tx
      .selectFrom('kept_answers')
      .select(['request', 'bytes'])
      .where('user_id', '=', user_id)
      .orderBy('created_at', 'desc')
      .orderBy('request', 'desc')
      .execute();
    let bytes = 0;
    const surplus = rows
      .filter((row, i) => (bytes += row.bytes) > MAX_BYTES || i >= MAX_ROWS)
      .map((row) => row.request);
    if (surplus.length > 0)
      await tx
        .deleteFrom('kept_answers')
        .where('user_id', '=', user_id)
        .where('request', 'in', surplus)
        .execute();
  });
}

async function releaseKey(db: Database, { user_id, request, claim }: AnswerClaim): Promise<void> {
  await db.writeOne((kysely) =>
    kysely
      .deleteFrom('kept_answers')
      .where('user_id', '=', user_id)
      .where('request', '=', request)
      .where('claim', '=', claim)
      .execute(),
  );
}
