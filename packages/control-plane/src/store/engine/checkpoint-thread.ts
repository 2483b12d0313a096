/**
 * The thread of checkpoints.ts, with its own connection. It runs one checkpoint for each message.
 */
import { parentPort, workerData } from 'node:worker_threads';
import { messageOf } from '@berth/kit/message-of';
import Sqlite from 'better-sqlite3';

/** The answer to a checkpoint request: null after success, or the error message. */
export type CheckpointEnd = string | null;

const port = parentPort;
if (port === null) throw new Error('checkpoint-thread.ts is started by checkpoints.ts');
const database = new Sqlite(String(workerData), { fileMustExist: true });

function checkpoint(): CheckpointEnd {
  try {
    // PASSIVE never waits. It skips pages that a reader or a backup still needs; the next
    // checkpoint copies them.
    database.pragma('wal_checkpoint(PASSIVE)');
    return null;
  } catch (error) {
    return messageOf(error);
  }
}

port.on('message', (message: 'checkpoint' | 'close') => {
  if (message === 'checkpoint') return port.postMessage(checkpoint() satisfies CheckpointEnd, []);
  database.close();
  port.close();
});
