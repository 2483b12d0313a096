/**
 * Checkpoints SQLite's WAL in a separate thread (checkpoint-thread.ts). By default SQLite
 * checkpoints inside the commit that finds the WAL long enough. That commit then waits for the disk
 * twice, and blocks this process meanwhile. The thread starts with the first checkpoint.
 * https://sqlite.org/wal.html#ckpt
 */
import { Worker } from 'node:worker_threads';
import { messageOf } from '@berth/kit/message-of';
import type Sqlite from 'better-sqlite3';
import type { CheckpointEnd } from './checkpoint-thread.ts';

export type Checkpoints = {
  /**
   * Starts a checkpoint if one is due. Call it often, while no transaction is open. Never rejects.
   * If the result is a promise, begin no transaction until it resolves, so that the next write can
   * restart the WAL at its beginning.
   */
  startIfDue(): Promise<void> | null;
  /** Resolves when the thread has closed the file. */
  close(): Promise<void>;
};

export const NO_CHECKPOINTS: Checkpoints = { startIfDue: () => null, close: async () => {} };

/** Length of the WAL, in pages, from which a checkpoint is due: SQLite's own default. */
const DUE_PAGES = 1_000;
/**
 * From this length on, writers wait for the checkpoint. The WAL restarts only after a checkpoint
 * that copied all of it. Under steady writes that never happens by itself, and the WAL grows until
 * a commit has to checkpoint.
 */
const LONG_PAGES = 8_000;
/**
 * Pause between these waits. Used if a wait did not shorten the WAL because a reader, such as a
 * backup, needs it.
 */
const USELESS_WAIT_PAUSE_MS = 5_000;
/**
 * At this length SQLite checkpoints inside a commit: the thread does not run, or a backup has been
 * reading for a long time.
 */
const AUTOCHECKPOINT_PAGES = 16_000;
const INTERVAL_MS = 200;
const RETRY_AFTER_MS = 60_000;

/** Numbers of pages: the length of the WAL, and the part that is already copied to the database. */
type Lengths = { log: number; checkpointed: number };

/**
 * `onCheckpointFailure`: called when a checkpoint failed. The checkpoint is retried after
 * RETRY_AFTER_MS; no data is lost.
 */
export function createCheckpoints(
  database: Sqlite.Database,
  path: string,
  onCheckpointFailure: (problem: string) => void,
): Checkpoints {
  let thread: Worker | null = null;
  let running = false;
  let nextAt = 0;
  let nextWaitAt = 0;
  /** Length of the WAL when writers last waited; 0 after the WAL was shorter again. */
  let lengthAtWait = 0;
  let resumeWriters = (): void => {};
  const end = (): void => {
    running = false;
    resumeWriters();
  };
  const fail = (problem: string): void => {
    nextAt = performance.now() + RETRY_AFTER_MS;
    onCheckpointFailure(problem);
  };
  database.pragma(`wal_autocheckpoint = ${AUTOCHECKPOINT_PAGES}`);

  function start(): Worker {
    const started = new Worker(new URL('./checkpoint-thread.ts', import.meta.url), {
      workerData: path,
    });
    // unref: the thread must not keep the process alive.
    started.unref();
    started.on('message', (problem: CheckpointEnd) => {
      end();
      if (problem !== null) fail(problem);
    });
    started.on('error', (error: Error) => fail(error.message));
    started.on('exit', () => {
      thread = null;
      end();
    });
    return started;
  }

  return {
    startIfDue() {
      const now = performance.now();
      if (running || now < nextAt) return null;
      nextAt = now + INTERVAL_MS;
      try {
        const [{ log, checkpointed }] = database.pragma('wal_checkpoint(NOOP)') as [Lengths];
        if (lengthAtWait > 0 && log >= lengthAtWait) nextWaitAt = now + USELESS_WAIT_PAUSE_MS;
        lengthAtWait = 0;
        const isLong = log >= LONG_PAGES && now >= nextWaitAt;
        if (log - checkpointed < DUE_PAGES && !isLong) return null;
        thread ??= start();
        thread.postMessage('checkpoint', []);
        running = true;
        if (!isLong) return null;
        lengthAtWait = log;
        return new Promise((resolve) => {
          resumeWriters = resolve;
        });
      } catch (error) {
        fail(messageOf(error));
        return null;
      }
    },
    async close() {
      const ending = thread;
      if (ending === null) return;
      const { promise: ended, resolve } = Promise.withResolvers<void>();
      ending.once('exit', () => resolve());
      ending.ref();
      ending.postMessage('close', []);
      await ended;
    },
  };
}
