/**
 * Adds an index to find nodes by address: a node that registers at a new address looks for a silent
 * node that had it.
 */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

export const nodeAddresses = (): Migration => ({
  async up(db: Kysely<unknown>) {
    await db.schema.createIndex('nodes_host_ip').on('nodes').column('host_ip').execute();
  },
});
