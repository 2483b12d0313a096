/**
 * The database of a run, and each control plane's connection to it. On PostgreSQL: on-postgres.ts.
 */
import { sql } from 'kysely';
import type { AllStores } from '../../src/store/open.ts';
import { type Database, openDatabase } from '../../src/store/engine/database.ts';
import { storesOn } from '../../src/store/open.ts';
import type { Moment } from './gate.ts';
import type { Random } from './random.ts';

/** One process' connection to the database. */
export type Hold = {
  stores: AllStores;
  /** Acts like kill -9: nothing in progress or in memory is written any more. */
  kill(): void;
  /** Faults of the wire, where there is one. */
  wire: {
    /** Drops the connections; the process may connect again. */
    drop(): void;
    /** Kills it at the n-th message from now and calls `killed`. */
    killAt(n: number, moment: Moment, killed: () => void): void;
    spare(): void;
  } | null;
};

export type SimDatabase = {
  /** Number of control planes. */
  controlPlanes: number;
  /** Number of calls that may run at once. */
  callsAtOnce: number;
  open(now: () => number): Promise<Hold>;
  /**
   * Reads without the control planes: whether everything is idle, and the measurements at the end.
   */
  onlooker(): AllStores;
  close(): Promise<void>;
};

export const quiet = { info: () => {}, warn: () => {} };

/** Migrated and empty databases: creating one would take a tenth of a run's time. */
const empty: Database[] = [];

/**
 * One control plane on SQLite in memory, with one call at a time: the seed alone decides what
 * happens, including ids, because rows that are equal in everything else are sorted by id. Each
 * process has its own memory, so that a killed one loses what it had not written (the times at
 * which nodes were last seen).
 */
export async function inMemory(now: () => number, random: Random): Promise<SimDatabase> {
  const db = empty.pop() ?? (await openDatabase('sqlite::memory:', quiet, Date.now));
  const word = (): string => (random.next() * 2 ** 32).toString(16).padStart(8, '0');
  const newId = (): string => word() + word() + word();
  return {
    controlPlanes: 1,
    callsAtOnce: 1,
    open: () => Promise.resolve({ stores: storesOn(db, now, newId), kill() {}, wire: null }),
    onlooker: () => storesOn(db, now, newId),
    async close() {
      await clear(db);
      empty.push(db);
    },
  };
}

/** Empties the database: migrations write no rows except those that record the migrations. */
async function clear({ kysely }: Database): Promise<void> {
  await sql`pragma foreign_keys = off`.execute(kysely);
  const tables = await sql<{ name: string }>`
    select name from sqlite_master where type = 'table' and (name not like 'sqlite_%' or name = 'sqlite_sequence') and name not like 'berth_migrations%'
  `.execute(kysely);
  for (const { name } of tables.rows) await sql`delete from ${sql.table(name)}`.execute(kysely);
  await sql`pragma foreign_keys = on`.execute(kysely);
}
