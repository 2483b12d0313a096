/** Files of our own on the disk: written whole, flushed, removed with a count of what that frees. Names are bytes. */
import { lstat, mkdir, open, readdir, readFile, rename, rmdir, unlink, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { exec } from '@berth/kit/exec';

export const errorCode = (error: unknown): string | undefined => (error as NodeJS.ErrnoException).code;
export const isGone = (error: unknown): boolean => errorCode(error) === 'ENOENT';

/** What `work` gives, or null where something on the way does not exist. */
export const orNull = <T>(work: Promise<T>): Promise<T | null> =>
  work.catch((error: unknown) => {
    if (isGone(error) || errorCode(error) === 'ENOTDIR') return null;
    throw error;
  });

/** Temporary file, flushed, renamed: a reader sees the old one or the new one, whole. */
export async function writeWhole(path: string, text: string): Promise<void> {
  for (let tries = 1; ; tries += 1) {
    const temporary = `${path}.${process.pid}.${(count += 1)}${UNNAMED}`;
    try {
      await mkdir(dirname(path), { recursive: true });
      await writeFile(temporary, text, { flush: true });
      return await rename(temporary, path);
    } catch (error) {
      await unlink(temporary).catch(() => undefined);
      // Somebody who tidied up took the folder, or the file before it had its name.
      if (!isGone(error) || tries === WRITE_TRIES) throw error;
    }
  }
}
/** How the name of a file ends that is being written. */
export const UNNAMED = '.new';
const WRITE_TRIES = 10;
let count = 0;

/** The value of a JSON file; null when it is not there or not readable as JSON. */
export async function readJson(path: string): Promise<unknown> {
  const text = await orNull(readFile(path, 'utf8'));
  if (text === null) return null;
  try {
    return JSON.parse(text) as unknown;
  } catch {
    // Torn by a crash of the machine: as good as none.
    return null;
  }
}

/** Its entries are on the disk after it. */
export async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, 'r');
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}

const SYNC_MS = 30 * 60_000;
/** Everything written to the file system of `path` so far is on the disk after it. One call, where a hundred thousand small files would each take one. */
export async function syncFileSystem(path: string, inherit: NodeJS.ProcessEnv, signal: AbortSignal): Promise<void> {
  const result = await exec(['sync', '--file-system', '--', path], { env: { ...inherit, LC_ALL: 'C' }, signal, timeoutMs: SYNC_MS });
  if (result.ended === 'abort') signal.throwIfAborted();
  if (result.code !== 0) throw new Error(`sync ${path}: ${result.stderr.trim() || (result.ended ?? result.signal)}`);
}

/** Removes a folder with all that is in it and tells how many bytes that freed: files that have another name elsewhere free none. */
export async function removeTree(path: Buffer | string): Promise<number> {
  const base = typeof path === 'string' ? Buffer.from(path) : path;
  const entries = await orNull(readdir(base, { encoding: 'buffer', withFileTypes: true }));
  if (entries === null) return 0;
  let freed = 0;
  await inParallel(entries, 16, async (entry) => {
    const child = Buffer.concat([base, SLASH, entry.name]);
    if (entry.isDirectory()) {
      freed += await removeTree(child);
      return;
    }
    const stat = await orNull(lstat(child));
    if (stat === null) return;
    await orNull(unlink(child));
    if (stat.nlink === 1) freed += stat.blocks * 512;
  });
  await orNull(rmdir(base));
  return freed;
}
const SLASH = Buffer.from('/');

/** Runs `work` on each of `items`, at most `most` at once. The first failure ends it; what has begun is waited for. */
export async function inParallel<T>(items: Iterable<T> | AsyncIterable<T>, most: number, work: (item: T) => Promise<void>): Promise<void> {
  const source = Symbol.asyncIterator in items ? items[Symbol.asyncIterator]() : items[Symbol.iterator]();
  let failed = false;
  // An async generator queues its calls, so that several may ask it.
  const one = async (): Promise<void> => {
    while (!failed) {
      const next = await source.next();
      if (next.done === true) return;
      await work(next.value);
    }
  };
  const workers = Array.from({ length: most }, () =>
    one().catch((error: unknown) => {
      failed = true;
      throw error;
    }),
  );
  const results = await Promise.allSettled(workers);
  // What was not read to its end has a file open.
  await source.return?.();
  const rejected = results.find((r) => r.status === 'rejected');
  if (rejected !== undefined) throw rejected.reason;
}
