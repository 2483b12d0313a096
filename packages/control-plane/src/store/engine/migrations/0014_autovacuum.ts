/**
 * PostgreSQL: autovacuum of the tables that retention empties starts when 2 % of the rows are dead.
 * With the default of 20 %, the dead rows of a year take up to a fifth more space.
 * https://www.postgresql.org/docs/current/routine-vacuuming.html#AUTOVACUUM
 */
import { type Kysely, sql } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { Capabilities } from '../capabilities.ts';

const TABLES = ['deployments', 'deployment_events', 'tasks', 'log_lines', 'audit_log'];

export const autovacuum = ({ engine }: Capabilities): Migration => ({
  async up(db: Kysely<unknown>) {
    if (engine !== 'postgres') return;
    for (const table of TABLES)
      await sql`
        alter table ${sql.table(table)} set (autovacuum_vacuum_scale_factor = 0.02)`.execute(db);
  },
});
