/**
 * Adds the instances of a deployment beside its first one, and the settings of a project about them.
 * An earlier version sees only the first instance.
 */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { Capabilities } from '../capabilities.ts';

export const instances = ({ text }: Capabilities): Migration => ({
  async up(db: Kysely<unknown>) {
    await db.schema
      .createTable('instances')
      .addColumn('id', text, (c) => c.primaryKey().notNull())
      .addColumn('project_id', text, (c) => c.notNull())
      .addColumn('deployment_id', text, (c) =>
        c.notNull().references('deployments.id').onDelete('cascade'),
      )
      .addColumn('process', text, (c) => c.notNull())
      .addColumn('number', 'integer', (c) => c.notNull())
      .addColumn('state', text, (c) => c.notNull())
      .addColumn('labelled', 'integer', (c) => c.notNull())
      .addColumn('node_id', text)
      .addColumn('host_port', 'integer')
      .addColumn('container_id', text)
      .addColumn('detail', text)
      .addColumn('losses', text, (c) => c.notNull())
      .addColumn('placement', text)
      .addColumn('since', 'bigint', (c) => c.notNull())
      .addColumn('created_at', 'bigint', (c) => c.notNull())
      .execute();
    for (const column of ['deployment_id', 'node_id', 'project_id'])
      await db.schema
        .createIndex(`instances_${column}`)
        .on('instances')
        .columns([column])
        .execute();
    for (const [name, value] of [
      ['processes', '[{"name":"web","count":1}]'],
      ['spread', 'nodes'],
      ['on_node_lost', 'move'],
    ] as const)
      await db.schema
        .alterTable('projects')
        .addColumn(name, text, (c) => c.notNull().defaultTo(value))
        .execute();
    await db.schema
      .alterTable('projects')
      .addColumn('sticky', 'integer', (c) => c.notNull().defaultTo(0))
      .execute();
    await db.schema.alterTable('deployments').addColumn('instance_id', text).execute();
    await db.schema
      .alterTable('deployments')
      .addColumn('instance_number', 'integer', (c) => c.notNull().defaultTo(1))
      .execute();
    await db.schema.alterTable('deployments').addColumn('lost_since', 'bigint').execute();
    await db.schema.alterTable('routes').addColumn('servers', text).execute();
  },
});
