/** Stores whether a person set `on_node_lost` of a project, or the project has the default. */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

export const onNodeLostSet = (): Migration => ({
  async up(db: Kysely<unknown>) {
    await db.schema
      .alterTable('projects')
      .addColumn('on_node_lost_set', 'integer', (c) => c.notNull().defaultTo(0))
      .execute();
  },
});
