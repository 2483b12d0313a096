/**
 * Adds whether an image was missing in the registry (and not deleted): a later clean-up checks it
 * again.
 */
import { type Kysely, sql } from 'kysely';
import type { Migration } from 'kysely/migration';

export const missingImages = (): Migration => ({
  async up(db: Kysely<unknown>) {
    await db.schema.alterTable('deployments').addColumn('image_missing', 'integer').execute();
    // An older version marked a missing image at the end of the clean-up, and a deleted image at
    // its start.
    await sql`
      update deployments set image_missing = 1
      where image_deleting is null
        and image_removed_at in (
          select finished_at from clean_ups where missing > 0 and finished_at is not null
        )`.execute(db);
  },
});
