/** Adds jobs. An earlier version does not know them: nothing starts their runs meanwhile. */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { Capabilities } from '../capabilities.ts';

export const jobs = ({ text }: Capabilities): Migration => ({
  async up(db: Kysely<unknown>) {
    await db.schema
      .createTable('jobs')
      .addColumn('project_id', text, (c) =>
        c.notNull().references('projects.id').onDelete('cascade'),
      )
      .addColumn('name', text, (c) => c.notNull())
      .addColumn('schedule', text, (c) => c.notNull())
      .addColumn('timezone', text, (c) => c.notNull())
      .addColumn('command', text, (c) => c.notNull())
      .addColumn('enabled', 'integer', (c) => c.notNull())
      .addColumn('overlap', text, (c) => c.notNull())
      .addColumn('timeout_seconds', 'integer', (c) => c.notNull())
      .addColumn('memory_bytes', 'bigint')
      .addColumn('cpus', 'double precision')
      .addColumn('retries', 'integer', (c) => c.notNull())
      .addColumn('next_at', 'bigint')
      .addColumn('created_by', text)
      .addColumn('created_at', 'bigint', (c) => c.notNull())
      .addColumn('updated_at', 'bigint', (c) => c.notNull())
      .addPrimaryKeyConstraint('jobs_primary', ['project_id', 'name'])
      .execute();
  },
});
