import type { Database } from './database.ts';

/** Tables whose rows end by themselves. */
type Ending =
  | 'deleted_users'
  | 'revoked_sessions'
  | 'used_codes'
  | 'device_codes'
  | 'device_tokens'
  | 'api_sessions'
  | 'api_tokens'
  | 'join_tokens';

/** All have an index on `expires_at`. */
export async function removeEnded(db: Database, table: Ending, before: number): Promise<number> {
  const { numDeletedRows } = await db.writeOne((kysely) =>
    kysely.deleteFrom(table).where('expires_at', '<=', before).executeTakeFirstOrThrow(),
  );
  return Number(numDeletedRows);
}
