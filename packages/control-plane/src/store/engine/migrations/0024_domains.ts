/** Adds custom domains of projects, and the current and past owner of each domain. */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { Capabilities } from '../capabilities.ts';

export const domains = ({ text }: Capabilities): Migration => ({
  async up(db: Kysely<unknown>) {
    await db.schema
      .alterTable('projects')
      .addColumn('domains', text, (c) => c.notNull().defaultTo('[]'))
      .execute();
    await db.schema
      .createTable('domain_claims')
      .addColumn('host', text, (c) => c.primaryKey())
      .addColumn('id', text, (c) => c.notNull())
      .addColumn('project_id', text, (c) => c.notNull())
      .addColumn('claimed_at', 'bigint', (c) => c.notNull())
      .addColumn('released_at', 'bigint')
      .execute();
    await db.schema
      .createIndex('domain_claims_project')
      .on('domain_claims')
      .columns(['project_id'])
      .execute();
    await db.schema
      .createIndex('domain_claims_released')
      .on('domain_claims')
      .columns(['released_at'])
      .execute();
  },
});
