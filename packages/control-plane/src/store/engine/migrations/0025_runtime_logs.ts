/** Adds the container logs that people are reading now, and how containers ended. */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { Capabilities } from '../capabilities.ts';

export const runtimeLogs = ({ text }: Capabilities): Migration => ({
  async up(db: Kysely<unknown>) {
    // Without foreign keys: rows live only seconds, and would otherwise have to be deleted before
    // their deployment or node.
    await db.schema
      .createTable('log_wants')
      .addColumn('key', text, (c) => c.notNull())
      .addColumn('owner', text, (c) => c.notNull())
      .addColumn('node_id', text, (c) => c.notNull())
      .addColumn('deployment_id', text, (c) => c.notNull())
      .addColumn('mode', text, (c) => c.notNull())
      .addColumn('tail', 'integer', (c) => c.notNull())
      .addColumn('since_at', 'bigint')
      .addColumn('until_at', 'bigint')
      .addColumn('stream', text)
      .addColumn('position', text)
      .addColumn('expires_at', 'bigint', (c) => c.notNull())
      .addPrimaryKeyConstraint('log_wants_primary', ['key', 'owner'])
      .execute();
    await db.schema
      .createTable('container_exits')
      .addColumn('deployment_id', text, (c) =>
        c.notNull().references('deployments.id').onDelete('cascade'),
      )
      .addColumn('run', text, (c) => c.notNull())
      .addColumn('node_id', text)
      .addColumn('container', text, (c) => c.notNull())
      .addColumn('exit_code', 'integer')
      .addColumn('out_of_memory', 'integer', (c) => c.notNull())
      .addColumn('error', text)
      .addColumn('started_at', 'bigint')
      .addColumn('finished_at', 'bigint')
      .addColumn('stored_at', 'bigint', (c) => c.notNull())
      .addColumn('truncated', 'integer', (c) => c.notNull())
      .addColumn('bytes', 'integer', (c) => c.notNull())
      // The last column: SQLite reads the columns before it without reading the pages of a long
      // text.
      .addColumn('lines', text, (c) => c.notNull())
      .addPrimaryKeyConstraint('container_exits_primary', ['deployment_id', 'run'])
      .execute();
  },
});
