/**
 * Records dataset versions (record-version.ts) in a thread with its own connection, because the
 * embedded engine works in the calling thread: in the main thread, API requests would wait for its
 * work, for the disk and for the garbage collector. The thread starts with the first recording. If
 * the thread dies, its running recordings fail, and the next recording starts a new thread.
 */
import { setFlagsFromString } from 'node:v8';
import { MessageChannel, Worker } from 'node:worker_threads';
import { messageOf } from '@berth/kit/message-of';
import type { DatasetStore } from '../../domain/data/dataset-stores.ts';
import { type FromRecording, type ToRecording, type ToThread } from './recording-messages.ts';

export type Recorder = {
  record: DatasetStore['record'];
  /** Aborts running recordings; resolves when the thread has closed the file. */
  close(): Promise<void>;
};

/**
 * Sets the initial heap of threads that start from now on, in MB. The default heap starts with a
 * few MB: recording some thousand changes then caused 30 small and several full garbage
 * collections, which use V8's helper threads on all cores and delay the API.
 */
const V8_FLAGS = ['--min-semi-space-size=8', '--initial-old-space-size=32'];

/** `path`: a database file that this process has opened. */
export function createRecorder(path: string): Recorder {
  let thread: Worker | null = null;
  let closed = false;
  const underWay = new Set<(why: Error) => void>();

  function start(): Worker {
    for (const flag of V8_FLAGS) setFlagsFromString(flag);
    const started = new Worker(new URL('./recording-thread.ts', import.meta.url), {
      workerData: path,
    });
    // unref: the thread must not keep the process alive.
    started.unref();
    let why = new Error('the recording thread exited');
    started.on('error', (error: Error) => {
      why = error;
    });
    started.on('exit', () => {
      thread = null;
      for (const fail of underWay) fail(why);
    });
    return started;
  }

  return {
    async record(claim, content, objects, signal) {
      signal.throwIfAborted();
      if (closed) throw new Error('the database is closed');
      const { port1: port, port2 } = new MessageChannel();
      const { promise: end, resolve, reject } = Promise.withResolvers<boolean>();
      const send = (message: ToRecording): void => port.postMessage(message, []);
      const stop = (): void => send({ kind: 'stop' });
      port.on('message', (reply: FromRecording) => {
        if (reply.kind === 'ended') resolve(reply.held);
        else if (reply.kind === 'failed') reject(new Error(reply.problem));
        else
          objects(reply.digest).then(
            (text) => send({ kind: 'object', text }),
            (error: unknown) => send({ kind: 'no object', problem: messageOf(error) }),
          );
      });
      underWay.add(reject);
      signal.addEventListener('abort', stop);
      try {
        thread ??= start();
        thread.postMessage({ claim, content, port: port2 } satisfies ToThread, [port2]);
        return await end;
      } catch (error) {
        signal.throwIfAborted();
        throw error;
      } finally {
        signal.removeEventListener('abort', stop);
        underWay.delete(reject);
        port.close();
      }
    },
    async close() {
      closed = true;
      const ending = thread;
      if (ending === null) return;
      const { promise: ended, resolve } = Promise.withResolvers<void>();
      ending.once('exit', () => resolve());
      ending.ref();
      ending.postMessage('close' satisfies ToThread, []);
      await ended;
    },
  };
}
