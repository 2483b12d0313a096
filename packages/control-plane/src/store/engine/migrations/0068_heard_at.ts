/**
 * Adds when a control plane last heard the agent of a node, by the uptime clock. Only control planes
 * that share a database write it.
 */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

export const heardAt = (): Migration => ({
  async up(db: Kysely<unknown>) {
    await db.schema.alterTable('nodes').addColumn('heard_at', 'bigint').execute();
  },
});
