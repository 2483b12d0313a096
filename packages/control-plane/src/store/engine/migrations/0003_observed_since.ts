/**
 * Adds a lower bound for the age of a node's container list: a list can arrive long after the agent
 * made it.
 */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

export const observedSince = (): Migration => ({
  async up(db: Kysely<unknown>) {
    await db.schema.alterTable('nodes').addColumn('observed_since', 'bigint').execute();
  },
});
