/** The thread that recording.ts starts, with its own database connection. */
import { access, open } from 'node:fs/promises';
import { setPriority } from 'node:os';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { parentPort, workerData } from 'node:worker_threads';
import { deflateSync } from 'node:zlib';
import { messageOf } from '@berth/kit/message-of';
import { Kysely } from 'kysely';
import { SQLITE } from '../engine/capabilities.ts';
import { createConnection, createRetries } from '../engine/connection.ts';
import { openSecondConnection } from '../engine/sqlite.ts';
import type { Tables } from '../engine/tables.ts';
import { recordVersion, type ThreadOptions } from './record-version.ts';
import { type FromRecording, type ToRecording, type ToThread } from './recording-messages.ts';

/** Upper limit of a rest in ms: the measured work can include a long wait for the lock. */
const LONGEST_REST_MS = 10;
/** Used only to sleep; no thread ever notifies it. */
const resting = new Int32Array(new SharedArrayBuffer(4));
/**
 * Deflates in this thread, not in the shared thread pool. Rests as long as it worked, because the
 * database was locked during the work.
 */
const OWN_THREAD: ThreadOptions = {
  deflated: async (text) => deflateSync(text),
  async rest(workedMs) {
    // Blocks the thread, because a timer waits for at least 1 ms, and the work took about 0.25 ms.
    Atomics.wait(resting, 0, 0, Math.min(workedMs, LONGEST_REST_MS));
    // Lets the event loop receive the message to stop.
    await nextTurn();
  },
};
const NICE = 5;
/**
 * Longest pause in ms before the next attempt to get the lock. With longer pauses, a process that
 * writes without pausing would starve this thread.
 */
const RETRY_MS = 1;

const port = parentPort;
if (port === null) throw new Error('recording-thread.ts is started by recording.ts');
const path = String(workerData);
const kysely = new Kysely<Tables>({ dialect: openSecondConnection(path) });
const db = createConnection(kysely, SQLITE, createRetries(path, SQLITE, RETRY_MS));
// Starts the shared thread pool now: its threads inherit the priority of the thread that first uses
// the pool.
await access(path);
try {
  // On Linux, 0 means the calling thread, and each thread has its own priority. Elsewhere, 0 would
  // change the whole process.
  if (process.platform === 'linux') setPriority(0, NICE);
} catch {
  // The system forbids a change of priority; recording also works at normal priority.
}

/**
 * Syncs the WAL without a lock. The commit that makes the version visible blocks the process, and
 * after this sync it writes little to the disk.
 */
async function syncWal(): Promise<void> {
  const log = await open(`${path}-wal`);
  try {
    await log.datasync();
  } finally {
    await log.close();
  }
}

async function record(
  { claim, content, port: asker }: Exclude<ToThread, 'close'>,
  stop: AbortController,
): Promise<void> {
  const send = (message: FromRecording): void => asker.postMessage(message, []);
  // Requests one object at a time, because the walk waits for each.
  let wanted = Promise.withResolvers<string>();
  asker.on('message', (message: ToRecording) => {
    if (message.kind === 'object') wanted.resolve(message.text);
    else if (message.kind === 'no object') wanted.reject(new Error(message.problem));
    else stop.abort(new Error('the recording was stopped'));
  });
  const objects = (digest: string): Promise<string> => {
    wanted = Promise.withResolvers();
    send({ kind: 'wanted', digest });
    return wanted.promise;
  };
  try {
    const held = await recordVersion(db, { claim, content }, objects, stop.signal, OWN_THREAD);
    if (held) await syncWal();
    send({ kind: 'ended', held });
  } catch (error) {
    send({ kind: 'failed', problem: messageOf(error) });
  }
}

const underWay = new Map<AbortController, Promise<void>>();
port.on('message', (message: ToThread) => {
  if (message === 'close') return void close();
  const stop = new AbortController();
  underWay.set(
    stop,
    record(message, stop).finally(() => underWay.delete(stop)),
  );
});

async function close(): Promise<void> {
  for (const stop of underWay.keys()) stop.abort(new Error('the database is being closed'));
  await Promise.all(underWay.values());
  await kysely.destroy();
  port?.close();
}
