/** Adds usage points of containers (store/usage.ts). */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { Capabilities } from '../capabilities.ts';

export const usage = ({ text }: Capabilities): Migration => ({
  async up(db: Kysely<unknown>) {
    await db.schema
      .createTable('usage_points')
      .addColumn('project_id', text, (c) =>
        c.notNull().references('projects.id').onDelete('cascade'),
      )
      .addColumn('step', 'integer', (c) => c.notNull())
      .addColumn('slot', 'integer', (c) => c.notNull())
      .addColumn('deployment_id', text, (c) => c.notNull())
      .addColumn('at', 'bigint', (c) => c.notNull())
      .addColumn('started_at', 'bigint')
      .addColumn('cpu_ms', 'bigint')
      .addColumn('throttled_ms', 'bigint')
      .addColumn('memory_bytes', 'bigint')
      .addColumn('memory_limit', 'bigint')
      .addColumn('restarts', 'bigint')
      .addColumn('oom_kills', 'bigint')
      .addColumn('net_rx', 'bigint')
      .addColumn('net_tx', 'bigint')
      .addPrimaryKeyConstraint('usage_points_key', ['project_id', 'step', 'slot', 'deployment_id'])
      .execute();
    // For retention, which removes whole slots.
    await db.schema
      .createIndex('usage_points_slot')
      .on('usage_points')
      .columns(['step', 'slot'])
      .execute();
  },
});
