/**
 * Adds the project field `volumes`, and the copies of volumes on nodes. These rows have no foreign
 * key, because a copy outlives its project.
 */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { Capabilities } from '../capabilities.ts';

export const volumes = ({ text }: Capabilities): Migration => ({
  async up(db: Kysely<unknown>) {
    await db.schema
      .alterTable('projects')
      .addColumn('volumes', text, (c) => c.notNull().defaultTo('[]'))
      .execute();
    // Set by DELETE …?volumes=true.
    await db.schema
      .alterTable('projects')
      .addColumn('deletes_volumes', 'integer', (c) => c.notNull().defaultTo(0))
      .execute();
    await db.schema
      .createTable('volume_copies')
      .addColumn('id', text, (c) => c.primaryKey())
      .addColumn('project_id', text, (c) => c.notNull())
      .addColumn('project', text, (c) => c.notNull())
      .addColumn('node_id', text, (c) => c.notNull())
      .addColumn('hostname', text, (c) => c.notNull())
      .addColumn('state', text, (c) => c.notNull())
      .addColumn('names', text, (c) => c.notNull())
      .addColumn('bytes', 'bigint')
      .addColumn('source', text)
      .addColumn('created_at', 'bigint', (c) => c.notNull())
      .addColumn('changed_at', 'bigint', (c) => c.notNull())
      .execute();
    await db.schema
      .createIndex('volume_copies_project')
      .on('volume_copies')
      .columns(['project_id'])
      .execute();
    await db.schema
      .createIndex('volume_copies_node')
      .on('volume_copies')
      .columns(['node_id'])
      .execute();
  },
});
