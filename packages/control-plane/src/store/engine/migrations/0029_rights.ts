/** Adds the members of projects, and the projects to which API tokens are limited. */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { Capabilities } from '../capabilities.ts';

export const rights = ({ text }: Capabilities): Migration => ({
  async up(db: Kysely<unknown>) {
    await db.schema
      .alterTable('projects')
      .addColumn('members', text, (c) => c.notNull().defaultTo('[]'))
      .execute();
    await db.schema.alterTable('api_tokens').addColumn('projects', text).execute();
    // Without foreign keys: a row outlives its project while events of the project are kept, and
    // outlives its user if the user is the last member.
    await db.schema
      .createTable('project_members')
      .addColumn('project_id', text, (c) => c.notNull())
      .addColumn('user_id', text, (c) => c.notNull())
      .addColumn('role', text, (c) => c.notNull())
      .addPrimaryKeyConstraint('project_members_pk', ['project_id', 'user_id'])
      .execute();
    await db.schema
      .createIndex('project_members_user')
      .on('project_members')
      .columns(['user_id'])
      .execute();
  },
});
