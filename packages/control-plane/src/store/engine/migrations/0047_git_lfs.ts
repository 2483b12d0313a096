/** Adds whether a build of the project fetches Git LFS files. */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

export const gitLfs = (): Migration => ({
  async up(db: Kysely<unknown>) {
    await db.schema
      .alterTable('projects')
      .addColumn('git_lfs', 'integer', (c) => c.notNull().defaultTo(0))
      .execute();
  },
});
