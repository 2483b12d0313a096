/** Adds the origins whose pages can call a project that requires a login. */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { Capabilities } from '../capabilities.ts';

export const corsOrigins = ({ text }: Capabilities): Migration => ({
  async up(db: Kysely<unknown>) {
    await db.schema
      .alterTable('projects')
      .addColumn('cors_origins', text, (c) => c.notNull().defaultTo('[]'))
      .execute();
  },
});
