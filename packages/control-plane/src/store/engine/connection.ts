/**
 * Statements and transactions on one connection or pool. A transaction that changed no data is
 * retried for RETRY_FOR_MS.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Capabilities, Transient } from './capabilities.ts';
import type { Db, Tx } from './tables.ts';
import { StoreError } from './errors.ts';

export type Connection = {
  capabilities: Capabilities;
  kysely: Db;
  /**
   * Runs one transaction that can write. `run` can be called several times, so it must do only
   * database work.
   */
  write<T>(run: (tx: Tx) => Promise<T>): Promise<T>;
  /**
   * Same as `write`, but does not wait for the disk: a power cut or a crash of the machine can undo
   * the transaction.
   */
  writeUnsynced<T>(run: (tx: Tx) => Promise<T>): Promise<T>;
  /** Runs one writing statement, without the cost of a transaction around it. */
  writeOne<T>(run: (db: Db) => Promise<T>): Promise<T>;
  /** Runs several reads on one consistent state, without locks. */
  snapshot<T>(run: (tx: Tx) => Promise<T>): Promise<T>;
};

export type WithRetries = <T>(run: () => Promise<T>) => Promise<T>;

/**
 * How long in ms a write waits for the lock of another process (a backup, a shell, the recording
 * thread) or for the server before it fails.
 */
const RETRY_FOR_MS = 15_000;

export const createConnection = (
  kysely: Db,
  capabilities: Capabilities,
  withRetries: WithRetries,
): Connection => ({
  capabilities,
  kysely,
  write: (run) => withRetries(() => kysely.transaction().execute(run)),
  writeUnsynced: (run) =>
    withRetries(() => capabilities.unsynced(kysely, (one) => one.transaction().execute(run))),
  writeOne: (run) => withRetries(() => run(kysely)),
  snapshot: (run) =>
    withRetries(() =>
      kysely
        .transaction()
        .setIsolationLevel('repeatable read')
        .setAccessMode('read only')
        .execute(run),
    ),
});

/**
 * `name`: name of the database, for messages. `longestPauseMs`: longest pause between two attempts.
 * `onWait`: called after each wait, with its length in ms.
 */
export const createRetries =
  (
    name: string,
    capabilities: Capabilities,
    longestPauseMs = 200,
    onWait: (ms: number) => void = () => {},
  ): WithRetries =>
  async (run) => {
    // The first pause (1 ms) is about as long as the recording thread holds the lock.
    for (
      let startedAt = performance.now(), pause = 1, attempt = 1;
      ;
      pause = Math.min(pause * 2, longestPauseMs), attempt++
    ) {
      try {
        const result = await run();
        if (attempt > 1) onWait(performance.now() - startedAt);
        return result;
      } catch (error) {
        const why = capabilities.transient(error);
        if (why === null) throw error;
        const waited = performance.now() - startedAt;
        if (waited > RETRY_FOR_MS) onWait(waited);
        if (waited > RETRY_FOR_MS) throw retriesExhausted(name, why, waited, error);
        await sleep(pause / 2 + (Math.random() * pause) / 2);
      }
    }
  };

function retriesExhausted(
  name: string,
  why: Transient,
  waited: number,
  cause: unknown,
): StoreError {
  const seconds = Math.round(waited / 1000);
  if (why === 'unreachable')
    return new StoreError(
      'unreachable',
      `the database ${name} has not answered for ${seconds} s: ${(cause as Error).message}`,
      { cause },
    );
  const by = why === 'locked' ? 'locked by another program' : 'too contended to write to';
  return new StoreError('locked', `the database ${name} has been ${by} for ${seconds} s`, {
    cause,
  });
}
