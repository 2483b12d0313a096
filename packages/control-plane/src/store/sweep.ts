import type { Database } from './engine/database.ts';

/** Tables whose rows expire. */
type Expiring =
  | 'deleted_users'
  | 'revoked_sessions'
  | 'used_codes'
  | 'device_codes'
  | 'device_tokens'
  | 'api_sessions'
  | 'api_tokens'
  | 'join_tokens'
  | 'idempotency_keys'
  | 'kept_answers';

const ROWS_A_STEP = 500;

/**
 * Removes up to about ROWS_A_STEP expired rows, oldest first, and returns their number. These
 * tables have an index on `expires_at`.
 */
export async function removeExpired(
  db: Database,
  table: Expiring,
  before: number,
): Promise<number> {
  const last = await db.kysely
    .selectFrom(table)
    .select('expires_at')
    .where('expires_at', '<=', before)
    .orderBy('expires_at')
    .offset(ROWS_A_STEP)
    .limit(1)
    .executeTakeFirst();
  const { numDeletedRows } = await db.writeOne((kysely) =>
    kysely
      .deleteFrom(table)
      .where('expires_at', '<=', last?.expires_at ?? before)
      .executeTakeFirstOrThrow(),
  );
  return Number(numDeletedRows);
}
