/** What a run keeps its data in, and how a process of a control plane comes to it. The other engine: on-postgres.ts. */
import type { Stores } from '../../src/domain/stores.ts';
import { openDatabase } from '../../src/store/database.ts';
import { storesOn } from '../../src/store/open.ts';
import type { Moment } from './gate.ts';

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

/**
 * One control plane on SQLite in memory. One call at a time: the seed alone decides what happens. Each process has a memory of its
 * own, so that a killed one takes with it what it had not written (when nodes were last seen).
 */
export async function inMemory(now: () => number): Promise<SimDatabase> {
  const db = await openDatabase('sqlite::memory:', quiet, now);
  return {
    controlPlanes: 1,
    callsAtOnce: 1,
    open: () => Promise.resolve({ stores: storesOn(db, now), kill() {}, wire: null }),
    onlooker: () => storesOn(db, now),
    close: () => db.close(),
  };
}
