/** Adds the standard input of runs. An earlier version starts such a run without its input. */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

export const runInput = (): Migration => ({
  async up(db: Kysely<unknown>) {
    await db.schema
      .alterTable('runs')
      .addColumn('stdin', 'integer', (c) => c.notNull().defaultTo(0))
      .execute();
  },
});
