/** What a node's list of containers is at least as new as: a list may arrive long after it was made. */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

export const observedSince = (): Migration => ({
  async up(db: Kysely<unknown>) {
    await db.schema.alterTable('nodes').addColumn('observed_since', 'bigint').execute();
  },
});
