/** The thread of checkpoints.ts, with its own connection. It runs one checkpoint for each message. */
import { parentPort, workerData } from 'node:worker_threads';
import Sqlite from 'better-sqlite3';

/** The answer to a checkpoint: null, or the error. */
export type CheckpointEnd = string | null;

const port = parentPort;
if (port === null) throw new Error('checkpoint-thread.ts is started by checkpoints.ts');
/** Length of the WAL, in pages, from which writers wait for the end of a checkpoint. */
const LONG_PAGES = 8_000;
/** How long a FULL checkpoint waits for a writer or an old reader. Writers wait too, without blocking their process (connection.ts). */
const LONGEST_WAIT_MS = 100;
const database = new Sqlite(String(workerData), { fileMustExist: true, timeout: LONGEST_WAIT_MS });

function checkpoint(): CheckpointEnd {
  try {
    // PASSIVE never waits. The next checkpoint copies the pages that a reader or a backup still needs.
    const [{ log }] = database.pragma('wal_checkpoint(PASSIVE)') as [{ log: number }];
    // The WAL starts again only if nobody wrote during the checkpoint. Under steady writes it would grow until a commit has to checkpoint.
    // FULL copies the few pages that are left and locks writers out meanwhile.
    if (log >= LONG_PAGES) database.pragma('wal_checkpoint(FULL)');
    return null;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

port.on('message', (message: 'checkpoint' | 'close') => {
  if (message === 'checkpoint') return port.postMessage(checkpoint() satisfies CheckpointEnd, []);
  database.close();
  port.close();
});
