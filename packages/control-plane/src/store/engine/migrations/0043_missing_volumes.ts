/**
 * Adds the times at which a node reported a copy of volumes, to distinguish a missing copy from a
 * deleted one.
 */
import { type Kysely, sql } from 'kysely';
import type { Migration } from 'kysely/migration';

export const missingVolumes = (): Migration => ({
  async up(db: Kysely<unknown>) {
    for (const column of ['reported_at', 'missing_since', 'delete_asked_at'])
      await db.schema.alterTable('volume_copies').addColumn(column, 'bigint').execute();
    // A copy has a size only if its node reported it. A copy in the state `deleting` had its
    // deletion requested when it entered that state.
    await sql`update volume_copies set reported_at = changed_at where bytes is not null`.execute(
      db,
    );
    await sql`
      update volume_copies set delete_asked_at = changed_at where state = 'deleting'`.execute(db);
  },
});
