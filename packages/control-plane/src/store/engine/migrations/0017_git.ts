/**
 * Adds the build settings of projects, their deploy keys and git tokens, and the trusted ssh host
 * keys.
 */
import { type Kysely, sql } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { Capabilities } from '../capabilities.ts';

export const git = ({ text }: Capabilities): Migration => ({
  async up(db: Kysely<unknown>) {
    const projects = (): ReturnType<typeof db.schema.alterTable> =>
      db.schema.alterTable('projects');
    await projects()
      .addColumn('build_context', text, (c) => c.notNull().defaultTo('.'))
      .execute();
    await projects().addColumn('build_target', text).execute();
    await projects()
      .addColumn('build_args', text, (c) => c.notNull().defaultTo('{}'))
      .execute();
    await projects()
      .addColumn('submodules', 'integer', (c) => c.notNull().defaultTo(1))
      .execute();
    await db.schema
      .createTable('deploy_keys')
      .addColumn('project_id', text, (c) =>
        c.primaryKey().references('projects.id').onDelete('cascade'),
      )
      .addColumn('public_key', text, (c) => c.notNull())
      .addColumn('fingerprint', text, (c) => c.notNull())
      .addColumn('sealed', text, (c) => c.notNull())
      .addColumn('created_at', 'bigint', (c) => c.notNull())
      .execute();
    await db.schema
      .createTable('git_tokens')
      .addColumn('project_id', text, (c) =>
        c.primaryKey().references('projects.id').onDelete('cascade'),
      )
      .addColumn('host', text, (c) => c.notNull())
      .addColumn('username', text)
      .addColumn('sealed', text, (c) => c.notNull())
      .addColumn('api_url', text)
      .addColumn('set_by', text)
      .addColumn('set_at', 'bigint', (c) => c.notNull())
      .execute();
    await db.schema
      .createTable('git_host_keys')
      .addColumn('host', text, (c) => c.notNull())
      .addColumn('fingerprint', text, (c) => c.notNull())
      .addColumn('key_type', text)
      .addColumn('state', text, (c) => c.notNull())
      .addColumn('added_by', text)
      .addColumn('at', 'bigint', (c) => c.notNull())
      .addPrimaryKeyConstraint('git_host_keys_primary', ['host', 'fingerprint'])
      .execute();
    // Builders that existed before this migration trusted host keys by themselves. Each of them can
    // import its keys once; a new builder cannot.
    await db.schema
      .createTable('git_host_imports')
      .addColumn('node_id', text, (c) => c.primaryKey().references('nodes.id').onDelete('cascade'))
      .execute();
    await sql`insert into git_host_imports (node_id)
      select id from nodes where role = 'builder'`.execute(db);
  },
});
