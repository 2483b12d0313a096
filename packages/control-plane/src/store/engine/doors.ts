/** The ways to one connection or pool of them: what may be run again when the engine says that nothing happened, is, for a while. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Capabilities, Transient } from './capabilities.ts';
import type { Db, Tx } from './tables.ts';
import { StoreError } from './errors.ts';

export type Doors = {
  capabilities: Capabilities;
  kysely: Db;
  /** One transaction that may write. `run` may be called again, so it does nothing but database work. */
  write<T>(run: (tx: Tx) => Promise<T>): Promise<T>;
  /** As `write`, of what may be lost with the machine: it does not wait for the disk. */
  writeUnsynced<T>(run: (tx: Tx) => Promise<T>): Promise<T>;
  /** One statement that writes, without the cost of a transaction around it. */
  writeOne<T>(run: (db: Db) => Promise<T>): Promise<T>;
  /** Several reads that see one state; takes no lock. */
  snapshot<T>(run: (tx: Tx) => Promise<T>): Promise<T>;
};

export type Patiently = <T>(run: () => Promise<T>) => Promise<T>;

/** How long a write waits for somebody else's lock (a backup, a shell, our recording thread) or for the server before it fails. */
const PATIENCE_MS = 15_000;

export const createDoors = (kysely: Db, capabilities: Capabilities, patiently: Patiently): Doors => ({
  capabilities,
  kysely,
  write: (run) => patiently(() => kysely.transaction().execute(run)),
  writeUnsynced: (run) => patiently(() => capabilities.unsynced(kysely, (one) => one.transaction().execute(run))),
  writeOne: (run) => patiently(() => run(kysely)),
  snapshot: (run) => patiently(() => kysely.transaction().setIsolationLevel('repeatable read').setAccessMode('read only').execute(run)),
});

/** `name`: of the database, for messages. `longestPauseMs`: between two tries. */
export const createPatience =
  (name: string, capabilities: Capabilities, longestPauseMs = 200): Patiently =>
  async (run) => {
    // At first as long as the recording thread has the lock.
    for (let began = Date.now(), pause = 1; ; pause = Math.min(pause * 2, longestPauseMs)) {
      try {
        return await run();
      } catch (error) {
        const why = capabilities.transient(error);
        if (why === null) throw error;
        const waited = Date.now() - began;
        if (waited > PATIENCE_MS) throw outOfPatience(name, why, waited, error);
        await sleep(pause / 2 + (Math.random() * pause) / 2);
      }
    }
  };

function outOfPatience(name: string, why: Transient, waited: number, cause: unknown): StoreError {
  const seconds = Math.round(waited / 1000);
  if (why === 'unreachable')
    return new StoreError('unreachable', `the database ${name} has not answered for ${seconds} s: ${(cause as Error).message}`, { cause });
  const by = why === 'locked' ? 'locked by another program' : 'too contended to write to';
  return new StoreError('locked', `the database ${name} has been ${by} for ${seconds} s`, { cause });
}
