/**
 * SHA-256 of many files in worker threads. Files are handed out in batches (a message for each would cost more than a small
 * file's hash), large ones are read piece by piece into a buffer that is used again, and a file that changed while it was
 * read is `changed`, never a sum of a state that did not exist.
 */
import { Worker } from 'node:worker_threads';
import { createPace, type Pace } from './pace.ts';
import type { HashBatch, HashedBatch, HashThreadData } from './sha256-files-worker.ts';

/** `size` is a hint (bytes): it decides how many files make a batch. */
export type FileToHash = { path: Buffer; size: number };
export type HashResult =
  /** `sha256` is 32 bytes, valid during the call only; `size` is how many bytes were read. */
  | { kind: 'ok'; sha256: Uint8Array; size: number }
  /** It was written, replaced or removed meanwhile, or is no regular file (any more). */
  | { kind: 'changed' }
  /** `code` as of errno: EACCES, EIO, ESTALE, ... */
  | { kind: 'error'; code: string };

export type Sha256Pool<T extends FileToHash> = {
  /** Resolves when there is room for more, not when the file is hashed. Rejects when a worker broke. */
  add(file: T): Promise<void> | null;
  /** Resolves when the result of every file that was added has been given. The pool can be used again. */
  drain(): Promise<void>;
  /** How many bytes were read until now, also of files that are not through. */
  bytesRead(): number;
  /** Does not wait for a worker that hangs in a read. */
  close(): void;
};

const BATCH_FILES = 256;
/** Some 40 ms of a core: a message wakes a thread whose caches are cold, which for each large file was 1.5 % of all. */
const BATCH_BYTES = 64 * 1024 * 1024;
/** A worker has up to three batches, so that it never waits for us, but nothing beside a large file: another may be free sooner. */
const MOST_BATCHES = 3;

type Batch<T> = { files: T[]; bytes: number };
type Member<T> = { worker: Worker; batches: Batch<T>[]; bytes: number };

/** `onResult` is called once for each file, batch by batch, in no particular order. `pace`: when its threads leave time to others; never. */
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
  const broke = (error: Error): void => {
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
    worker.on('error', broke);
    worker.on('exit', (code) => broke(new Error(`a hashing thread ended with ${code}`)));
    workers.push(member);
    return member;
  }

  /** The one with least to do; a new one rather than one that is busy; null when all have enough. */
  function pick(): Member<T> | null {
    const [least] = workers.toSorted((a, b) => a.batches.length - b.batches.length);
    if (least === undefined || (least.batches.length > 0 && workers.length < count)) return start();
    return (
      workers.find((w) => w.batches.length === least.batches.length && w.bytes < BATCH_BYTES && w.batches.length < MOST_BATCHES) ?? null
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
      broke(new Error('the hashing pool was closed'));
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
