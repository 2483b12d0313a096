/**
 * Adds the uptime clock (domain/platform/uptime.ts), and columns of deployments for deadlines,
 * retries and their order in lists.
 */
import { type Kysely, sql } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { Capabilities } from '../capabilities.ts';

export const deadlines = ({ text }: Capabilities): Migration => ({
  async up(db: Kysely<unknown>) {
    await db.schema
      .createTable('uptime')
      .addColumn('id', 'integer', (c) => c.primaryKey())
      .addColumn('clock', 'bigint', (c) => c.notNull())
      .execute();
    await db.schema.alterTable('deployments').addColumn('timer', text).execute();
    await db.schema.alterTable('deployments').addColumn('retry', text).execute();
    await db.schema
      .alterTable('deployments')
      .addColumn('builds_given_up', 'integer', (c) => c.notNull().defaultTo(0))
      .execute();
    // The previous version leaves `ordinal` null; queries and the index then use the time of the
    // request.
    await db.schema.alterTable('deployments').addColumn('ordinal', 'bigint').execute();
    await sql`create index deployments_ordinal on deployments (coalesce(ordinal, created_at), id)`.execute(
      db,
    );
    await sql`create index deployments_status_ordinal on deployments (status, coalesce(ordinal, created_at), id)`.execute(
      db,
    );
  },
});
