/**
 * Migrated PostgreSQL databases for tests. A used one is emptied and used again: a new copy takes
 * ten times as long.
 */
import type { Postgres } from '@berth/testbed/postgres';
import { Client } from 'pg';
import { openStores } from '../../src/store/open.ts';

const quiet = { info: () => {}, warn: () => {} };
/** Migrations write no rows except those that record the migrations. */
const TABLES = `select string_agg(format('delete from %I;', tablename), '') as sql from pg_tables
  where schemaname = 'public' and tablename not like 'berth_migrations%'`;
const SEQUENCES = `select setval(oid, 1, false) from pg_class where relkind = 'S'`;

export type EmptiedDatabases = {
  /** Returns the URL of an empty database. */
  borrow(): Promise<string>;
  /** Every connection to it must have ended. */
  giveBack(url: string): Promise<void>;
};

export async function emptiedDatabases(pg: Postgres): Promise<EmptiedDatabases> {
  await (await openStores({ databaseUrl: await pg.createDatabase('ready'), log: quiet })).close();
  const free: string[] = [];
  let made = 0;
  return {
    borrow: async () => free.pop() ?? pg.createDatabase(`emptied${made++}`, 'ready'),
    async giveBack(url) {
      const client = new Client({ connectionString: url });
      await client.connect();
      try {
        // Without foreign keys, the order of the tables does not matter.
        await client.query('set session_replication_role = replica');
        const { rows } = await client.query<{ sql: string }>(TABLES);
        await client.query(rows[0]?.sql ?? '');
        await client.query(SEQUENCES);
      } finally {
        await client.end();
      }
      free.push(url);
    },
  };
}
