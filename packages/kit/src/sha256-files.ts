/**
 * Computes SHA-256 of many files in worker threads. Workers get files in batches, because a message
 * per file would cost more than the hash of a small file. Large files are read in pieces into a
 * reused buffer. A file that changes during the read gives `changed`, never the hash of a mixed
 * state.
 */
import { Worker } from 'node:worker_threads';
import { createPace, type Pace } from './pace.ts';
import type { HashBatch, HashedBatch, HashThreadData } from './sha256-files-worker.ts';

/** `size` is in bytes. It is only a hint, which determines the batches. */
export type FileToHash = { path: Buffer; size: number };
export type HashResult =
  /**
   * `sha256` has 32 bytes, which are valid only during the call. `size` is the number of bytes
   * read.
   */
  | { kind: 'ok'; sha256: Uint8Array; size: number }
  /** The file was written, replaced or removed during the read, or it is not a regular file. */
  | { kind: 'changed' }
  /** `code` is an errno name: EACCES, EIO, ESTALE, ... */
  | { kind: 'error'; code: string };

export type Sha256Pool<T extends FileToHash> = {
  /**
   * Resolves when the pool accepts more files, not when the file is hashed; null means immediately.
   * Rejects if a worker failed.
   */
  add(file: T): Promise<void> | null;
  /** Resolves when `onResult` was called for every added file. The pool can then be used again. */
  drain(): Promise<void>;
  /** Number of bytes read so far, including files in progress. */
  bytesRead(): number;
  /** Ends the workers without waiting for a read that hangs. */
  close(): void;
};

const BATCH_FILES = 256;
/**
 * A batch of this size takes about 40 ms. One message per large file took 1.5 % of the total time,
 * because it wakes a thread with cold caches.
 */
const BATCH_BYTES = 64 * 1024 * 1024;
/**
 * A worker has up to 3 batches, so that it never waits for the next one. A worker with a large file
 * gets no further batch, because another worker can be free sooner.
 */
const MAX_BATCHES = 3;

type Batch<T> = { files: T[]; bytes: number };
type Member<T> = { worker: Worker; batches: Batch<T>[]; bytes: number };

/**
 * Calls `onResult` once for each file, batch by batch, in no particular order. `pace` throttles the
 * threads; default: never.
 */
export function createSha256Pool<T extends FileToHash>(
  { workers: count, pace = createPace() }: { workers: number; pace?: Pace },
  onResult: (file: T, result: HashResult) => void,
): Sha256Pool<T> {
  const counter = new BigInt64Array(new SharedArrayBuffer(8));
  const workers: Member<T>[] = [];
  const queue: Batch<T>[] = [];
  let open: Batch<T> = { files: [], bytes: 0 };
  let failure: Error | null = null;
  let wakers: { wake: () => void; fail: (error: Error) => void }[] = [];

  const wakeAll = (): void => {
    const list = wakers;
    wakers = [];
    for (const { wake, fail } of list) {
      if (failure === null) wake();
      else fail(failure);
    }
  };
  const change = (): Promise<void> => {
    if (failure !== null) return Promise.reject(failure);
    return new Promise((wake, fail) => void wakers.push({ wake, fail }));
  };
  const breakPool = (error: Error): void => {
    failure ??= error;
    wakeAll();
  };

  function start(): Member<T> {
    const workerData: HashThreadData = { counter, pace };
    const worker = new Worker(new URL('./sha256-files-worker.ts', import.meta.url), { workerData });
    const member: Member<T> = { worker, batches: [], bytes: 0 };
    worker.on('message', (hashed: HashedBatch) => {
      const { files, bytes } = member.batches.shift() ?? { files: [], bytes: 0 };
      member.bytes -= bytes;
      dispatch();
      for (const [i, file] of files.entries()) onResult(file, resultOf(hashed, i));
      wakeAll();
    });
    worker.on('error', breakPool);
    worker.on('exit', (code) => breakPool(new Error(`a hashing thread exited with code ${code}`)));
    workers.push(member);
    return member;
  }

  /**
   * Returns the least busy worker, starts a new one if all are busy, or returns null if all have
   * enough work.
   */
  function pick(): Member<T> | null {
    const [least] = workers.toSorted((a, b) => a.batches.length - b.batches.length);
    if (least === undefined || (least.batches.length > 0 && workers.length < count)) return start();
    return (
      workers.find(
        (w) =>
          w.batches.length === least.batches.length &&
          w.bytes < BATCH_BYTES &&
          w.batches.length < MAX_BATCHES,
      ) ?? null
    );
  }

  function dispatch(): void {
    for (let batch = queue[0]; batch !== undefined; batch = queue[0]) {
      const member = pick();
      if (member === null) return;
      queue.shift();
      const paths = Buffer.concat(batch.files.flatMap(({ path }) => [path, NUL]));
      member.batches.push(batch);
      member.bytes += batch.bytes;
      const message: HashBatch = { paths, count: batch.files.length };
      member.worker.postMessage(message, []);
    }
  }

  function flush(): void {
    if (open.files.length > 0) queue.push(open);
    open = { files: [], bytes: 0 };
    dispatch();
  }

  async function untilRoom(): Promise<void> {
    while (queue.length >= count) await change();
  }
  return {
    add(file) {
      if (failure !== null) return Promise.reject(failure);
      open.files.push(file);
      open.bytes += file.size;
      if (open.files.length < BATCH_FILES && open.bytes < BATCH_BYTES) return null;
      flush();
      return queue.length < count ? null : untilRoom();
    },
    async drain() {
      flush();
      while (workers.some(({ batches }) => batches.length > 0)) await change();
      if (failure !== null) throw failure;
    },
    bytesRead: () => Number(Atomics.load(counter, 0)),
    close() {
      for (const { worker } of workers) {
        worker.removeAllListeners('exit');
        worker.unref();
        void worker.terminate();
      }
      breakPool(new Error('the hashing pool was closed'));
    },
  };
}

const NUL = Buffer.from([0]);

function resultOf({ sums, sizes, problems }: HashedBatch, i: number): HashResult {
  const problem = problems.get(i);
  if (problem === '') return { kind: 'changed' };
  if (problem !== undefined) return { kind: 'error', code: problem };
  return { kind: 'ok', sha256: sums.subarray(32 * i, 32 * i + 32), size: sizes[i] ?? 0 };
}
