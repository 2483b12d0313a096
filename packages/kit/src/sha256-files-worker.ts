/** The thread of sha256-files.ts: hashes one batch after the other. */
import { createHash, hash } from 'node:crypto';
import { closeSync, constants, fstatSync, openSync, readSync, type Stats } from 'node:fs';
import { parentPort, workerData } from 'node:worker_threads';
import { createBreather, type Pace } from './pace.ts';

/** What a worker gets: paths, each ended by NUL. */
export type HashBatch = { paths: Uint8Array; count: number };
/** What it gives: for file i sum 32*i, the size, and a text in `problems` where it is not ok ('' for changed). */
export type HashedBatch = { sums: Uint8Array; sizes: Float64Array; problems: Map<number, string> };

/** Both of all workers; the counter is read while a large file is under way. */
export type HashThreadData = { counter: BigInt64Array; pace: Pace };

const { counter, pace } = workerData as HashThreadData;
const breathe = createBreather(pace);
/** Less than half a millisecond to hash: between two pieces it can rest. */
const buffer = Buffer.allocUnsafeSlow(128 * 1024);
/** A name may by now be a FIFO, which must not make us wait, or a symlink, which would lead elsewhere. */
const FLAGS = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
/** What opening gives for a name that is gone or is something else by now. */
const GONE = new Set(['ENOENT', 'ELOOP', 'ENOTDIR', 'ENXIO', 'EISDIR', 'ENODEV']);

const same = (a: Stats, b: Stats): boolean => a.size === b.size && a.mtimeMs === b.mtimeMs && a.ctimeMs === b.ctimeMs && a.ino === b.ino;

/** The sum, or null when the file changed while it was read. */
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
  // Not beyond what it had: a file that is appended to all the time would never end.
  while (size < expected) {
    if (filled === buffer.length) {
      streaming ??= createHash('sha256');
      streaming.update(buffer);
      filled = 0;
    }
    const count = readSync(fd, buffer, filled, Math.min(buffer.length - filled, expected - size), null);
    if (count === 0) break;
    filled += count;
    size += count;
    Atomics.add(counter, 0, BigInt(count));
    breathe();
  }
  const rest = buffer.subarray(0, filled);
  return { sum: streaming === null ? hash('sha256', rest, 'buffer') : streaming.update(rest).digest(), size };
}

parentPort?.on('message', ({ paths, count }: HashBatch) => {
  const all = Buffer.from(paths.buffer, paths.byteOffset, paths.byteLength);
  const hashed: HashedBatch = { sums: new Uint8Array(32 * count), sizes: new Float64Array(count), problems: new Map() };
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
