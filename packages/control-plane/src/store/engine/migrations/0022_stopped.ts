/** Adds whether a project is stopped, and whether its route shows the page of a stopped project. */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

export const stopped = (): Migration => ({
  async up(db: Kysely<unknown>) {
    await db.schema.alterTable('projects').addColumn('stopped_at', 'bigint').execute();
    await db.schema
      .alterTable('routes')
      .addColumn('stopped', 'integer', (c) => c.notNull().defaultTo(0))
      .execute();
  },
});
