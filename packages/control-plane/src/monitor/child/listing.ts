/**
 * The listing of a dataset's folder, written by `find` straight into a file. It has one record for
 * each name, with everything that decides whether a file must be hashed again. Two byte-identical
 * listings need no parsing.
 *
 *   f<mode> <size> <mtime> <ctime> <inode> <path> NUL   regular file
 *   d<path> NUL                  folder, without times, which lock files would change
 *   l<path> NUL <target> NUL     symlink
 *   s<path> NUL                  skipped: a storage server's snapshots
 *   n<path> NUL                  skipped: a removed file that NFS keeps while a process has it open
 *   o<type><path> NUL            skipped: FIFOs, sockets, devices
 *
 * Paths are raw bytes, relative to the folder. `find` lists the content of a folder directly after
 * the folder.
 */
import { spawn } from 'node:child_process';
import { closeSync, fstatSync, openSync, readSync } from 'node:fs';
import { dyingWithParent } from '@berth/kit/exec';
import { breathe } from './scan-pace.ts';
import { ShareUnreachableError } from './share.ts';

export const FILE = 0x66;
export const FOLDER = 0x64;
export const LINK = 0x6c;
export const SNAPSHOTS = 0x73;
export const SILLY = 0x6e;
export const OTHER = 0x6f;
const SPACE = 0x20;

const HEX = '[0-9a-fA-F]';
/**
 * NFS clients give this name to a file that was removed while open (“silly rename”), until it is
 * closed.
 */
const SILLY_NAME = `.nfs${HEX.repeat(8)}*`;
const EXPRESSION = [
  ...['-type', 'f', '-not', '-name', SILLY_NAME, '-printf', 'f%m %s %T@ %C@ %i %P\\0'],
  ...['-o', '-type', 'd', '-not', '-name', '.snapshot', '-printf', 'd%P\\0'],
  ...['-o', '-type', 'd', '-prune', '-printf', 's%P\\0'],
  ...['-o', '-type', 'l', '-printf', 'l%P\\0%l\\0'],
  ...['-o', '-type', 'f', '-printf', 'n%P\\0'],
  ...['-o', '-printf', 'o%y%P\\0'],
];
/** Returns the command. `root` is absolute, so `find` cannot read it as an option. */
export const findArgv = (root: string): string[] => [
  'find',
  '-P',
  root,
  '-ignore_readdir_race',
  '-mindepth',
  '1',
  ...EXPRESSION,
];

const MOST_ERRORS = 16_384;
/** Interval in ms at which the records written by `find` are counted. */
const COUNT_MS = 500;

/** An open file that begins with a listing of `length` bytes. */
export type Listing = { fd: number; length: number };

/**
 * Writes a listing. Throws ShareUnreachableError with the first path that `find` could not read:
 * without that folder, the listing would look as if its files were removed. Other failures (no
 * `find`, disk full) throw an Error.
 */
export async function writeListing(
  root: string,
  path: string,
  { env, onWritten }: { env: NodeJS.ProcessEnv; onWritten: (records: number) => void },
): Promise<Listing> {
  const fd = openSync(path, 'w+');
  const countRecords = createRecordCounter(fd);
  const look = setInterval(() => onWritten(countRecords()), COUNT_MS);
  try {
    const { code, signal, errors } = await runFind(root, fd, env);
    if (code === 0) return { fd, length: fstatSync(fd).size };
    const said = errors.split('\n')[0]?.replace(/^find: /, '') ?? '';
    if (code !== 1 || said === '' || /standard output|write error/i.test(said))
      throw new Error(
        `find ${code === null ? `was killed by ${signal}` : `exited with ${code}`}: ${said}`,
      );
    throw new ShareUnreachableError(`Not all of the folder can be read: ${said}.`);
  } catch (error) {
    closeSync(fd);
    throw error;
  } finally {
    clearInterval(look);
  }
}

function runFind(
  root: string,
  fd: number,
  env: NodeJS.ProcessEnv,
): Promise<{ code: number | null; signal: NodeJS.Signals | null; errors: string }> {
  const [program = '', ...args] = dyingWithParent(findArgv(root));
  const child = spawn(program, args, {
    stdio: ['ignore', fd, 'pipe'],
    env: { ...env, LC_ALL: 'C' },
  });
  let errors = '';
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    if (errors.length < MOST_ERRORS) errors += text;
  });
  return new Promise((resolve, reject) => {
    child.once('error', (error) =>
      reject(new Error(`cannot start ${program}: ${error.message}`, { cause: error })),
    );
    child.once('close', (code, signal) => resolve({ code, signal, errors }));
  });
}

/**
 * Returns a function that counts the records written by `find`. Each call reads only the new bytes.
 */
function createRecordCounter(fd: number): () => number {
  const buffer = Buffer.allocUnsafe(256 * 1024);
  let position = 0;
  let count = 0;
  return () => {
    for (
      let read = readSync(fd, buffer, 0, buffer.length, position);
      read > 0;
      read = readSync(fd, buffer, 0, buffer.length, position)
    ) {
      for (let at = buffer.indexOf(0); at !== -1 && at < read; at = buffer.indexOf(0, at + 1))
        count++;
      position += read;
    }
    return count;
  };
}

/** Returns whether the two listings are byte-identical. */
export function sameBytes(a: Listing, b: Listing): boolean {
  if (a.length !== b.length) return false;
  const [left, right] = [Buffer.allocUnsafe(256 * 1024), Buffer.allocUnsafe(256 * 1024)];
  for (let at = 0; at < a.length; at += left.length) {
    const size = Math.min(left.length, a.length - at);
    readFully(a.fd, left, size, at);
    readFully(b.fd, right, size, at);
    if (left.compare(right, 0, size, 0, size) !== 0) return false;
  }
  return true;
}

export function readFully(fd: number, into: Buffer, size: number, position: number): void {
  for (let done = 0; done < size; ) {
    const read = readSync(fd, into, done, size - done, position + done);
    if (read === 0) throw new Error('a file in STATE_DIR is truncated');
    done += read;
  }
}

/**
 * Returns the end of the record that begins at `from` (after its last NUL), or -1 if the record
 * does not end before `limit`.
 */
export function recordEnd(buffer: Buffer, from: number, limit: number): number {
  let end = buffer.indexOf(0, from) + 1;
  if (end > 0 && buffer[from] === LINK) end = buffer.indexOf(0, end) + 1;
  return end === 0 || end > limit ? -1 : end;
}

/**
 * Calls `onRecord` for each record; it reuses the buffer. After each chunk it yields to the event
 * loop and awaits `onChunk`.
 */
export async function eachRecord(
  { fd, length }: Listing,
  onRecord: (buffer: Buffer, from: number, to: number, index: number) => void,
  onChunk?: () => Promise<void>,
): Promise<void> {
  let buffer = Buffer.allocUnsafe(16 * 1024);
  let kept = 0;
  let index = 0;
  for (let position = 0; position < length; ) {
    if (kept === buffer.length) buffer = Buffer.concat([buffer, Buffer.allocUnsafe(buffer.length)]);
    const size = Math.min(buffer.length - kept, length - position);
    readFully(fd, buffer.subarray(kept), size, position);
    position += size;
    const limit = kept + size;
    let from = 0;
    for (let to = recordEnd(buffer, from, limit); to !== -1; to = recordEnd(buffer, from, limit)) {
      onRecord(buffer, from, to, index++);
      from = to;
      breathe();
    }
    buffer.copyWithin(0, from, limit);
    kept = limit - from;
    await new Promise<void>((resolve) => void setImmediate(resolve));
    await onChunk?.();
  }
  if (kept > 0) throw new Error('the listing ends inside a record');
}

/**
 * Fields of a record of type FILE. Times are in seconds since the epoch; `path` is the offset of
 * the path.
 */
export type FileRecord = {
  executable: boolean;
  size: number;
  mtime: number;
  ctime: number;
  path: number;
};

export function parseFile(buffer: Buffer, from: number): FileRecord {
  const mode = buffer.indexOf(SPACE, from);
  const size = buffer.indexOf(SPACE, mode + 1);
  const mtime = buffer.indexOf(SPACE, size + 1);
  const ctime = buffer.indexOf(SPACE, mtime + 1);
  const inode = buffer.indexOf(SPACE, ctime + 1);
  return {
    // The third digit from the right is the owner's; its lowest bit means executable.
    executable: mode - from > 3 && ((buffer[mode - 3] ?? 0) & 1) === 1,
    size: Number(buffer.toString('latin1', mode + 1, size)),
    mtime: Number(buffer.toString('latin1', size + 1, mtime)),
    ctime: Number(buffer.toString('latin1', mtime + 1, ctime)),
    path: inode + 1,
  };
}

/** Returns the offset of the path of a record. */
export function pathStart(buffer: Buffer, from: number): number {
  const type = buffer[from];
  if (type === FILE) return parseFile(buffer, from).path;
  return type === OTHER ? from + 2 : from + 1;
}
