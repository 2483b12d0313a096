/** Adds the settle time of projects, and the memory limits of instances that have their own. */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

export const processes = (): Migration => ({
  async up(db: Kysely<unknown>) {
    await db.schema
      .alterTable('projects')
      .addColumn('settle_seconds', 'integer', (c) => c.notNull().defaultTo(5))
      .execute();
    await db.schema.alterTable('instances').addColumn('memory_bytes', 'bigint').execute();
  },
});
