/** Returns the size and the state of a database of any version of Berth. */
import { statSync } from 'node:fs';
import { type Kysely, sql } from 'kysely';
import { presentIn } from '../engine/migrate.ts';
import { isSqlite, openPlain, pathIn } from './plain.ts';

export type Measured = {
  bytes: number;
  /**
   * Differs after a control plane has used the database, because a control plane advances the
   * uptime clock every second.
   */
  state: string;
};

export async function measure(databaseUrl: string): Promise<Measured> {
  const { db } = openPlain(databaseUrl);
  try {
    const { applied } = await presentIn(db);
    const tables = (await db.introspection.getTables()).map((table) => table.name);
    const clock = tables.includes('uptime')
      ? (await sql<{ clock: number }>`select clock from uptime`.execute(db)).rows
      : [Math.random()];
    return {
      bytes: isSqlite(databaseUrl) ? bytesOfFile(pathIn(databaseUrl)) : await bytesOfServer(db),
      state: JSON.stringify([applied, clock]),
    };
  } finally {
    await db.destroy();
  }
}

const bytesOfFile = (path: string): number =>
  ['', '-wal'].reduce(
    (sum, end) => sum + (statSync(path + end, { throwIfNoEntry: false })?.size ?? 0),
    0,
  );

async function bytesOfServer(db: Kysely<unknown>): Promise<number> {
  const { rows } = await sql<{
    bytes: number;
  }>`select pg_database_size(current_database()) as bytes`.execute(db);
  return rows[0]?.bytes ?? 0;
}
