/** Adds the file of the repository that sets a job. An earlier version can change such a job. */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { Capabilities } from '../capabilities.ts';

export const fileJobs = ({ text }: Capabilities): Migration => ({
  async up(db: Kysely<unknown>) {
    await db.schema.alterTable('jobs').addColumn('config_file', text).execute();
    await db.schema.alterTable('jobs').addColumn('config_commit', text).execute();
  },
});
