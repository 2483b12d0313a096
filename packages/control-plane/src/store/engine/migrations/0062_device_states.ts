/** Adds an index to find the approved devices of an account that is disabled or deleted. */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

export const deviceStates = (): Migration => ({
  async up(db: Kysely<unknown>) {
    await db.schema
      .createIndex('device_codes_status')
      .on('device_codes')
      .column('status')
      .execute();
  },
});
