/**
 * Adds the sealed secrets of projects, the keys that seal them, and the secrets that a deployment
 * received.
 */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { Capabilities } from '../capabilities.ts';

export const secrets = ({ text }: Capabilities): Migration => ({
  async up(db: Kysely<unknown>) {
    await db.schema
      .createTable('project_keys')
      .addColumn('project_id', text, (c) =>
        c.primaryKey().references('projects.id').onDelete('cascade'),
      )
      .addColumn('wrapped', text, (c) => c.notNull())
      .addColumn('wrapped_by', text, (c) => c.notNull())
      .addColumn('created_at', 'bigint', (c) => c.notNull())
      .execute();
    await db.schema
      .createIndex('project_keys_wrapped_by')
      .on('project_keys')
      .column('wrapped_by')
      .execute();
    await db.schema
      .createTable('project_secrets')
      .addColumn('project_id', text, (c) =>
        c.notNull().references('projects.id').onDelete('cascade'),
      )
      .addColumn('name', text, (c) => c.notNull())
      .addColumn('sealed', text, (c) => c.notNull())
      .addColumn('fingerprint', text, (c) => c.notNull())
      .addColumn('scope', text, (c) => c.notNull())
      .addColumn('delivery', text, (c) => c.notNull())
      .addColumn('bytes', 'integer', (c) => c.notNull())
      .addColumn('set_by', text)
      .addColumn('set_at', 'bigint', (c) => c.notNull())
      .addPrimaryKeyConstraint('project_secrets_primary', ['project_id', 'name'])
      .execute();
    // Increased by each change of a secret: the ETag of the project includes it.
    await db.schema
      .alterTable('projects')
      .addColumn('secrets_version', 'integer', (c) => c.notNull().defaultTo(0))
      .execute();
    await db.schema.alterTable('deployments').addColumn('secrets', text).execute();
  },
});
