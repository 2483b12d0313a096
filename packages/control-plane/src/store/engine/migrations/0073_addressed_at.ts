/**
 * Adds when a node got its address, by the uptime clock; null: before this version. It tells whether
 * another machine has the address of a silent node (domain/nodes/taken-address.ts).
 */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

export const addressedAt = (): Migration => ({
  async up(db: Kysely<unknown>) {
    await db.schema.alterTable('nodes').addColumn('addressed_at', 'bigint').execute();
  },
});
