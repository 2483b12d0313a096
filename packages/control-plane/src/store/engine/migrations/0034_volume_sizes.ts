/** Adds the size of each volume of a copy. */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { Capabilities } from '../capabilities.ts';

export const volumeSizes = ({ text }: Capabilities): Migration => ({
  async up(db: Kysely<unknown>) {
    await db.schema
      .alterTable('volume_copies')
      .addColumn('sizes', text, (c) => c.notNull().defaultTo('{}'))
      .execute();
  },
});
