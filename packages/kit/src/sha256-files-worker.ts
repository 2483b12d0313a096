/** The worker thread of sha256-files.ts: hashes batches one after the other. */
import { createHash, hash } from 'node:crypto';
import { closeSync, constants, fstatSync, openSync, readSync, type Stats } from 'node:fs';
import { parentPort, workerData } from 'node:worker_threads';
import { createBreather, type Pace } from './pace.ts';

/** A message to a worker: paths, each terminated by NUL. */
export type HashBatch = { paths: Uint8Array; count: number };
/**
 * The answer of a worker. The hash of file i starts at byte 32*i of `sums`. `problems` has an errno
 * name, or '' for a changed file.
 */
export type HashedBatch = { sums: Uint8Array; sizes: Float64Array; problems: Map<number, string> };

/** All workers share `counter` and `pace`. The counter includes the bytes of files in progress. */
export type HashThreadData = { counter: BigInt64Array; pace: Pace };

const { counter, pace } = workerData as HashThreadData;
const breathe = createBreather(pace);
/** Hashing one full buffer takes less than 0.5 ms. The thread can rest between two buffers. */
const buffer = Buffer.allocUnsafeSlow(128 * 1024);
/**
 * Flags that open without blocking and without following links, because the file might have been
 * replaced by a FIFO or a symlink.
 */
const FLAGS = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
/** Errors of `open` for a file that was removed or replaced by something else. */
const GONE = new Set(['ENOENT', 'ELOOP', 'ENOTDIR', 'ENXIO', 'EISDIR', 'ENODEV']);

const same = (a: Stats, b: Stats): boolean =>
  a.size === b.size && a.mtimeMs === b.mtimeMs && a.ctimeMs === b.ctimeMs && a.ino === b.ino;

/** Returns the hash, or null if the file changed during the read. */
function hashFile(path: Buffer): { sum: Buffer; size: number } | null {
  const fd = openSync(path, FLAGS);
  try {
    const before = fstatSync(fd);
    if (!before.isFile()) return null;
    const { sum, size } = read(fd, before.size);
    return size === before.size && same(before, fstatSync(fd)) ? { sum, size } : null;
  } finally {
    closeSync(fd);
  }
}

function read(fd: number, expected: number): { sum: Buffer; size: number } {
  let streaming: ReturnType<typeof createHash> | null = null;
  let filled = 0;
  let size = 0;
  // Do not read beyond the initial size, because a file that grows all the time would never end.
  while (size < expected) {
    if (filled === buffer.length) {
      streaming ??= createHash('sha256');
      streaming.update(buffer);
      filled = 0;
    }
    const count = readSync(
      fd,
      buffer,
      filled,
      Math.min(buffer.length - filled, expected - size),
      null,
    );
    if (count === 0) break;
    filled += count;
    size += count;
    Atomics.add(counter, 0, BigInt(count));
    breathe();
  }
  const rest = buffer.subarray(0, filled);
  return {
    sum: streaming === null ? hash('sha256', rest, 'buffer') : streaming.update(rest).digest(),
    size,
  };
}

parentPort?.on('message', ({ paths, count }: HashBatch) => {
  const all = Buffer.from(paths.buffer, paths.byteOffset, paths.byteLength);
  const hashed: HashedBatch = {
    sums: new Uint8Array(32 * count),
    sizes: new Float64Array(count),
    problems: new Map(),
  };
  for (let i = 0, from = 0; i < count; i++) {
    const to = all.indexOf(0, from);
    try {
      const result = hashFile(all.subarray(from, to));
      if (result === null) hashed.problems.set(i, '');
      else {
        hashed.sums.set(result.sum, 32 * i);
        hashed.sizes[i] = result.size;
      }
    } catch (error) {
      const code = (error as NodeJS.ErrnoException).code ?? String(error);
      hashed.problems.set(i, GONE.has(code) ? '' : code);
    }
    from = to + 1;
  }
  parentPort?.postMessage(hashed, [hashed.sums.buffer, hashed.sizes.buffer] as ArrayBuffer[]);
});
