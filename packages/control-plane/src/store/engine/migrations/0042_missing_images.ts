/** Adds whether an image was only missing in the registry: a later clean-up looks again. */
import { type Kysely, sql } from 'kysely';
import type { Migration } from 'kysely/migration';

export const missingImages = (): Migration => ({
  async up(db: Kysely<unknown>) {
    await db.schema.alterTable('deployments').addColumn('image_missing', 'integer').execute();
    // An earlier version marked a missing image at the end of the clean-up, and an image that it
    // deleted at the start.
    await sql`
      update deployments set image_missing = 1
      where image_deleting is null
        and image_removed_at in (
          select finished_at from clean_ups where missing > 0 and finished_at is not null
        )`.execute(db);
  },
});
