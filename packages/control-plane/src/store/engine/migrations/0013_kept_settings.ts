/** Adds a table that stores equal settings of old deployments once (store/kept-settings.ts). */
import { type Kysely, sql } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { Capabilities } from '../capabilities.ts';

export const keptSettings = ({ text }: Capabilities): Migration => ({
  async up(db: Kysely<unknown>) {
    await db.schema
      .createTable('kept_settings')
      .addColumn('project_id', text, (c) =>
        c.notNull().references('projects.id').onDelete('cascade'),
      )
      .addColumn('digest', text, (c) => c.notNull())
      .addColumn('settings', text, (c) => c.notNull())
      .addPrimaryKeyConstraint('kept_settings_primary', ['project_id', 'digest'])
      .execute();
    await db.schema.alterTable('deployments').addColumn('settings_digest', text).execute();
    // Makes retention reduce these deployments once more, so that it stores equal settings once.
    await sql`update deployments set thinned_at = null where thinned_at is not null`.execute(db);
  },
});
