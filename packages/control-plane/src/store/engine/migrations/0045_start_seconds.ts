/**
 * Adds the time that a new container of a project has to answer. Null: the setting PROBE_TIMEOUT.
 */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

export const startSeconds = (): Migration => ({
  async up(db: Kysely<unknown>) {
    await db.schema.alterTable('projects').addColumn('start_seconds', 'integer').execute();
  },
});
