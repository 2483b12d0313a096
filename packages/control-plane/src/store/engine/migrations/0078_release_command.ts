/** Adds the release command of projects, and when that of a deployment succeeded. */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { Capabilities } from '../capabilities.ts';

export const releaseCommand = ({ text }: Capabilities): Migration => ({
  async up(db: Kysely<unknown>) {
    await db.schema.alterTable('projects').addColumn('release_command', text).execute();
    await db.schema
      .alterTable('projects')
      .addColumn('release_timeout_seconds', 'integer', (c) => c.notNull().defaultTo(600))
      .execute();
    await db.schema.alterTable('deployments').addColumn('release_done_at', 'bigint').execute();
  },
});
