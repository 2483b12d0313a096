/** Adds the counts of processes that people set, also of processes in a file of the repository. */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { Capabilities } from '../capabilities.ts';

export const scaled = ({ text }: Capabilities): Migration => ({
  async up(db: Kysely<unknown>) {
    await db.schema
      .alterTable('projects')
      .addColumn('scaled', text, (c) => c.notNull().defaultTo('{}'))
      .execute();
  },
});
