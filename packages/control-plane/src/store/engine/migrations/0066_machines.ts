/**
 * Adds what machines have (labels, CPUs, memory, devices), what projects require of them, and the
 * leases of devices.
 */
import { type Kysely, sql } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { Capabilities } from '../capabilities.ts';

export const machines = ({ engine, text }: Capabilities): Migration => ({
  async up(db: Kysely<unknown>) {
    await db.schema.alterTable('nodes').addColumn('cpus', 'double precision').execute();
    await db.schema.alterTable('nodes').addColumn('memory_bytes', 'bigint').execute();
    for (const column of ['labels', 'admin_labels', 'devices'])
      await db.schema.alterTable('nodes').addColumn(column, text).execute();
    await db.schema
      .alterTable('projects')
      .addColumn('requires', text, (c) => c.notNull().defaultTo('{}'))
      .execute();
    await db.schema
      .alterTable('projects')
      .addColumn('replace_set', 'integer', (c) => c.notNull().defaultTo(0))
      .execute();
    await db.schema.alterTable('deployments').addColumn('memory_bytes', 'bigint').execute();
    const memory =
      engine === 'sqlite'
        ? sql`json_extract(settings, '$.memory_bytes')`
        : sql`cast(cast(settings as jsonb) ->> 'memory_bytes' as bigint)`;
    await sql`
      update deployments set memory_bytes = ${memory}
      where status in ('pending', 'building', 'built', 'deploying', 'running')`.execute(db);
    await db.schema
      .createTable('device_leases')
      .addColumn('node_id', text, (c) => c.notNull())
      .addColumn('kind', text, (c) => c.notNull())
      .addColumn('name', text, (c) => c.notNull())
      .addColumn('deployment_id', text, (c) => c.notNull())
      .addColumn('returns_to', text)
      .addColumn('instance_id', text)
      .addColumn('since', 'bigint', (c) => c.notNull())
      .addPrimaryKeyConstraint('device_leases_pk', ['node_id', 'kind', 'name'])
      .execute();
  },
});
