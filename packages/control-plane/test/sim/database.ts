/** What a run keeps its data in, and how a process of a control plane comes to it. The other engine: on-postgres.ts. */
import { sql } from 'kysely';
import type { Stores } from '../../src/domain/stores.ts';
import { type Database, openDatabase } from '../../src/store/engine/database.ts';
import { storesOn } from '../../src/store/open.ts';
import type { Moment } from './gate.ts';
import type { Random } from './random.ts';

/** One process's hold on the database. */
export type Hold = {
  stores: Stores;
  /** As kill -9: nothing that is under way or in memory is written any more. */
  kill(): void;
  /** Where there is a wire between the two. */
  wire: {
    /** The connections are lost; it may connect anew. */
    drop(): void;
    /** Killed at the n-th message from now; `killed` is told. */
    killAt(n: number, moment: Moment, killed: () => void): void;
    spare(): void;
  } | null;
};

export type SimDatabase = {
  /** How many control planes use it. */
  controlPlanes: number;
  /** How many calls may be under way at once. */
  callsAtOnce: number;
  open(now: () => number): Promise<Hold>;
  /** Reads past the control planes, as it is now: whether all is at rest, and what is measured at the end. */
  onlooker(): Stores;
  close(): Promise<void>;
};

export const quiet = { info: () => {}, warn: () => {} };

/** Migrated and empty: a run that makes its own waits a tenth of its time for it. */
const empty: Database[] = [];

/**
 * One control plane on SQLite in memory. One call at a time: the seed alone decides what happens, ids among it, since what is equal
 * in all else is sorted by them. Each process has a memory of its own, so that a killed one takes with it what it had not written
 * (when nodes were last seen).
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

/** As the migrations leave it: they write no rows but those that say that they were run. */
async function clear({ kysely }: Database): Promise<void> {
  await sql`pragma foreign_keys = off`.execute(kysely);
  const tables = await sql<{ name: string }>`
    select name from sqlite_master where type = 'table' and (name not like 'sqlite_%' or name = 'sqlite_sequence') and name not like 'berth_migrations%'
  `.execute(kysely);
  for (const { name } of tables.rows) await sql`delete from ${sql.table(name)}`.execute(kysely);
  await sql`pragma foreign_keys = on`.execute(kysely);
}
