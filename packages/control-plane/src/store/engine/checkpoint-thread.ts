/** The thread of checkpoints.ts, with a connection of its own: one checkpoint a message. */
import { parentPort, workerData } from 'node:worker_threads';
import Sqlite from 'better-sqlite3';

/** What it says of a checkpoint: null, or what went wrong. */
export type CheckpointEnd = string | null;

const port = parentPort;
if (port === null) throw new Error('checkpoint-thread.ts is started by checkpoints.ts');
const database = new Sqlite(String(workerData), { fileMustExist: true });

function checkpoint(): CheckpointEnd {
  try {
    // PASSIVE waits for nobody: what a reader or a backup still needs is left for the next one.
    database.pragma('wal_checkpoint(PASSIVE)');
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
