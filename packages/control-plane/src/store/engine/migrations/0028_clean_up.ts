/**
 * Adds the record of clean-ups of the registry, the removed images, and the images that deleted
 * projects have left behind.
 */
import { type Kysely, sql } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { Capabilities } from '../capabilities.ts';

export const cleanUp = ({ text }: Capabilities): Migration => ({
  async up(db: Kysely<unknown>) {
    await db.schema
      .createTable('clean_ups')
      .addColumn('id', text, (c) => c.primaryKey())
      .addColumn('state', text, (c) => c.notNull())
      .addColumn('requested_by', text)
      .addColumn('holds_builds', 'integer', (c) => c.notNull())
      .addColumn('waiting', text)
      .addColumn('task_id', text)
      .addColumn('node_id', text)
      .addColumn('images', 'integer', (c) => c.notNull())
      .addColumn('images_left', 'integer', (c) => c.notNull())
      .addColumn('removed', 'integer')
      .addColumn('missing', 'integer')
      .addColumn('bytes_before', 'bigint')
      .addColumn('bytes_after', 'bigint')
      .addColumn('error_code', text)
      .addColumn('error_message', text)
      .addColumn('requested_at', 'bigint', (c) => c.notNull())
      .addColumn('started_at', 'bigint')
      .addColumn('finished_at', 'bigint')
      .execute();
    await db.schema
      .createIndex('clean_ups_requested')
      .on('clean_ups')
      .columns(['requested_at'])
      .execute();
    await db.schema.alterTable('deployments').addColumn('image_removed_at', 'bigint').execute();
    // 1 until the registry has confirmed the deletion.
    await db.schema.alterTable('deployments').addColumn('image_deleting', 'integer').execute();
    await sql`create index deployments_image on deployments (image_digest) where image_digest is not null`.execute(
      db,
    );
    await db.schema
      .createTable('orphan_images')
      .addColumn('repository', text, (c) => c.notNull())
      .addColumn('digest', text, (c) => c.notNull())
      .addColumn('noted_at', 'bigint', (c) => c.notNull())
      .addPrimaryKeyConstraint('orphan_images_primary', ['repository', 'digest'])
      .execute();
    await sql`create index tasks_clean on tasks (seq) where kind = 'clean'`.execute(db);
  },
});
