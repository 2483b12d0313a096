/** Adds the record of the last backups. */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { Capabilities } from '../capabilities.ts';

export const backups = ({ text }: Capabilities): Migration => ({
  async up(db: Kysely<unknown>) {
    await db.schema
      .createTable('backups')
      .addColumn('id', text, (c) => c.primaryKey())
      .addColumn('scheduled', 'integer', (c) => c.notNull())
      .addColumn('target', text, (c) => c.notNull())
      .addColumn('name', text)
      .addColumn('bytes', 'bigint')
      .addColumn('error', text)
      .addColumn('started_at', 'bigint', (c) => c.notNull())
      .addColumn('finished_at', 'bigint')
      .execute();
    await db.schema.createIndex('backups_started').on('backups').columns(['started_at']).execute();
  },
});
