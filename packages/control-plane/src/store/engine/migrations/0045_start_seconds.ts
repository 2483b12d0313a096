/**
 * Adds how long in seconds a new container of a project can take to answer. Null means the setting
 * PROBE_TIMEOUT.
 */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

export const startSeconds = (): Migration => ({
  async up(db: Kysely<unknown>) {
    await db.schema.alterTable('projects').addColumn('start_seconds', 'integer').execute();
  },
});
