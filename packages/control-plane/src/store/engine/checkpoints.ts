/**
 * Brings what was committed from SQLite's write-ahead log into the database, in a thread of its own (checkpoint-thread.ts). Left
 * to itself SQLite does it inside whichever commit finds the log long enough, with two waits for the disk, and nothing else in
 * this process runs meanwhile. The thread begins when it is first needed. https://sqlite.org/wal.html#ckpt
 */
import { Worker } from 'node:worker_threads';
import type Sqlite from 'better-sqlite3';
import type { CheckpointEnd } from './checkpoint-thread.ts';

export type Checkpoints = {
  /** To be called now and then while no transaction is open: begins a checkpoint where one is due. Never throws. */
  look(): void;
  /** Resolves when the thread has let go of the file. */
  close(): Promise<void>;
};

export const NO_CHECKPOINTS: Checkpoints = { look: () => {}, close: async () => {} };

/** As many pages of the log as SQLite takes by itself. */
const DUE_PAGES = 1_000;
/** Where the thread cannot keep up, or there is none, SQLite takes its turn inside a commit. */
const LATEST_PAGES = 16_000;
const LOOK_MS = 200;
const AFTER_TROUBLE_MS = 60_000;

/** In pages: of the log, and how much of it is in the database. */
type Lengths = { log: number; checkpointed: number };

/** `onTrouble`: a checkpoint failed; it is tried again, and nothing is lost meanwhile. */
export function createCheckpoints(database: Sqlite.Database, path: string, onTrouble: (problem: string) => void): Checkpoints {
  let thread: Worker | null = null;
  let underWay = false;
  let lookAt = 0;
  const trouble = (problem: string): void => {
    lookAt = performance.now() + AFTER_TROUBLE_MS;
    onTrouble(problem);
  };
  database.pragma(`wal_autocheckpoint = ${LATEST_PAGES}`);

  function start(): Worker {
    const started = new Worker(new URL('./checkpoint-thread.ts', import.meta.url), { workerData: path });
    // It is no reason for the process to stay.
    started.unref();
    started.on('message', (problem: CheckpointEnd) => {
      underWay = false;
      if (problem !== null) trouble(problem);
    });
    started.on('error', (error: Error) => trouble(error.message));
    started.on('exit', () => {
      underWay = false;
      thread = null;
    });
    return started;
  }

  return {
    look() {
      const now = performance.now();
      if (underWay || now < lookAt) return;
      lookAt = now + LOOK_MS;
      try {
        const [{ log, checkpointed }] = database.pragma('wal_checkpoint(NOOP)') as [Lengths];
        if (log - checkpointed < DUE_PAGES) return;
        underWay = true;
        thread ??= start();
        thread.postMessage('checkpoint', []);
      } catch (error) {
        underWay = false;
        trouble(error instanceof Error ? error.message : String(error));
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
