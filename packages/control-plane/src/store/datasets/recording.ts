/**
 * Has versions of datasets recorded (record-version.ts) by a thread with a connection of its own. The embedded engine works in whatever
 * thread calls it: in ours, whoever asks the API would wait for it, for its disk, and for the collection of the garbage that it makes.
 * The thread begins when it is first needed; should it die, what it had under way fails, and the next version has a new one.
 */
import { setFlagsFromString } from 'node:v8';
import { MessageChannel, Worker } from 'node:worker_threads';
import type { DatasetStore } from '../../domain/dataset-stores.ts';
import { type FromRecording, problemOf, type ToRecording, type ToThread } from './recording-messages.ts';

export type Recorder = {
  record: DatasetStore['record'];
  /** Ends what is under way; resolves when the thread has let go of the file. */
  close(): Promise<void>;
};

/**
 * Of threads that begin from now on (megabytes). A thread's memory begins at a few, so that to record a version of some thousand
 * changes took thirty small collections and several whole ones, which wake V8's helpers on all cores beside whoever waits for an answer.
 */
const V8_FLAGS = ['--min-semi-space-size=8', '--initial-old-space-size=32'];

/** `path`: of a file that this process has opened. */
export function createRecorder(path: string): Recorder {
  let thread: Worker | null = null;
  let closed = false;
  const underWay = new Set<(why: Error) => void>();

  function start(): Worker {
    for (const flag of V8_FLAGS) setFlagsFromString(flag);
    const started = new Worker(new URL('./recording-thread.ts', import.meta.url), { workerData: path });
    // It is no reason for the process to stay.
    started.unref();
    let why = new Error('the thread that records versions has ended');
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
      const tell = (message: ToRecording): void => port.postMessage(message, []);
      const stop = (): void => tell({ kind: 'stop' });
      port.on('message', (said: FromRecording) => {
        if (said.kind === 'ended') resolve(said.held);
        else if (said.kind === 'failed') reject(new Error(said.problem));
        else
          objects(said.digest).then(
            (text) => tell({ kind: 'object', text }),
            (error: unknown) => tell({ kind: 'no object', problem: problemOf(error) }),
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
