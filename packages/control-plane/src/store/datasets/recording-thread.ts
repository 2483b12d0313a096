/** The thread of recording.ts, with a connection of its own. */
import { access, open } from 'node:fs/promises';
import { setPriority } from 'node:os';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { parentPort, workerData } from 'node:worker_threads';
import { deflateSync } from 'node:zlib';
import { Kysely } from 'kysely';
import { SQLITE } from '../engine/capabilities.ts';
import { createDoors, createPatience } from '../engine/doors.ts';
import { type Manner, recordVersion } from './record-version.ts';
import { type FromRecording, problemOf, type ToRecording, type ToThread } from './recording-messages.ts';
import { openBeside } from '../engine/sqlite.ts';
import type { Tables } from '../engine/tables.ts';

/** What counts as work may have been a wait for the lock. */
const LONGEST_REST_MS = 10;
/** Never told. */
const resting = new Int32Array(new SharedArrayBuffer(4));
/** Deflates here, not in the threads that everybody shares; as long to others as the work took, for whom the database was locked. */
const ASIDE: Manner = {
  deflated: async (text) => deflateSync(text),
  async rest(workedMs) {
    // Of the whole thread: a timer's shortest rest is a millisecond, of a quarter's work.
    Atomics.wait(resting, 0, 0, Math.min(workedMs, LONGEST_REST_MS));
    // So that it hears when it is to stop.
    await nextTurn();
  },
};
const NICE = 5;
/** Where the process writes without a pause, whoever asks seldom for the lock would not get it. */
const TRY_AGAIN_MS = 1;

const port = parentPort;
if (port === null) throw new Error('recording-thread.ts is started by recording.ts');
const path = String(workerData);
const kysely = new Kysely<Tables>({ dialect: openBeside(path) });
const db = createDoors(kysely, SQLITE, createPatience(path, SQLITE, TRY_AGAIN_MS));
// The pool that all threads share begins with the first task for it, and is as low as who gave that.
await access(path);
try {
  // On Linux, where 0 is the thread that asks and each has a priority of its own. Elsewhere it would be the whole process.
  if (process.platform === 'linux') setPriority(0, NICE);
} catch {
  // The system does not let us: it is recorded all the same.
}

/** So that the commit that shows the version, for which the whole process waits, finds little to bring to the disk. Locks nothing. */
async function toDisk(): Promise<void> {
  const log = await open(`${path}-wal`);
  try {
    await log.datasync();
  } finally {
    await log.close();
  }
}

async function record({ claim, content, port: asker }: Exclude<ToThread, 'close'>, stop: AbortController): Promise<void> {
  const tell = (message: FromRecording): void => asker.postMessage(message, []);
  // One at a time: the walk waits for each.
  let wanted = Promise.withResolvers<string>();
  asker.on('message', (message: ToRecording) => {
    if (message.kind === 'object') wanted.resolve(message.text);
    else if (message.kind === 'no object') wanted.reject(new Error(message.problem));
    else stop.abort(new Error('it was told to stop'));
  });
  const objects = (digest: string): Promise<string> => {
    wanted = Promise.withResolvers();
    tell({ kind: 'wanted', digest });
    return wanted.promise;
  };
  try {
    const held = await recordVersion(db, { claim, content }, objects, stop.signal, ASIDE);
    if (held) await toDisk();
    tell({ kind: 'ended', held });
  } catch (error) {
    tell({ kind: 'failed', problem: problemOf(error) });
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
