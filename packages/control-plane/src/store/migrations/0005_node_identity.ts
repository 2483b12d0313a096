/** What nodes say of themselves: architecture, engine, capabilities, disk. */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { Capabilities } from '../capabilities.ts';

export const nodeIdentity = ({ text }: Capabilities): Migration => ({
  async up(db: Kysely<unknown>) {
    for (const column of ['arch', 'engine', 'capabilities', 'disk']) await db.schema.alterTable('nodes').addColumn(column, text).execute();
  },
});
