/** Adds how many nodes keep the datasets of a project, and the versions that each node keeps. */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { Capabilities } from '../capabilities.ts';

export const dataCopies = ({ text }: Capabilities): Migration => ({
  async up(db: Kysely<unknown>) {
    await db.schema
      .alterTable('projects')
      .addColumn('data_copies', 'integer', (c) => c.notNull().defaultTo(1))
      .execute();
    await db.schema
      .createTable('dataset_pins')
      .addColumn('project_id', text, (c) => c.notNull())
      .addColumn('node_id', text, (c) => c.notNull())
      .addColumn('dataset_id', text, (c) => c.notNull())
      .addColumn('version', 'integer', (c) => c.notNull())
      .addPrimaryKeyConstraint('dataset_pins_pk', [
        'project_id',
        'node_id',
        'dataset_id',
        'version',
      ])
      .execute();
    await db.schema
      .createIndex('dataset_pins_node')
      .on('dataset_pins')
      .columns(['node_id'])
      .execute();
  },
});
