/**
 * The agent's own files on disk: written atomically, flushed, and removed with a count of the freed
 * bytes. Names are bytes.
 */
import { chmod, lstat, mkdir, readdir, readFile, rmdir, stat, unlink } from 'node:fs/promises';
import { exec } from '@berth/kit/exec';
import { writeFileWhole } from '@berth/kit/write-file';

export const errorCode = (error: unknown): string | undefined =>
  (error as NodeJS.ErrnoException).code;
export const isMissing = (error: unknown): boolean => errorCode(error) === 'ENOENT';

/** Returns the result of `work`, or null if a part of the path does not exist. */
export const nullIfMissing = <T>(work: Promise<T>): Promise<T | null> =>
  work.catch((error: unknown) => {
    if (isMissing(error) || errorCode(error) === 'ENOTDIR') return null;
    throw error;
  });

/**
 * Writes a file whole (kit/write-file.ts); creates its folder, also where another process that
 * cleans up has just removed it.
 */
export const writeWhole = (path: string, text: string): Promise<void> =>
  writeFileWhole(path, text, { folderMode: 0o755 });

/** Returns the parsed JSON file; null if it does not exist or is not JSON. */
export async function readJson(path: string): Promise<unknown> {
  const text = await nullIfMissing(readFile(path, 'utf8'));
  if (text === null) return null;
  try {
    return JSON.parse(text) as unknown;
  } catch {
    // A crash of the machine cut the file: treat it as missing.
    return null;
  }
}

const SYNC_MS = 30 * 60_000;
/**
 * Flushes the whole file system of `path`: one call instead of one for each of a hundred thousand
 * small files.
 */
export async function syncFileSystem(
  path: string,
  inherit: NodeJS.ProcessEnv,
  signal: AbortSignal,
): Promise<void> {
  const result = await exec(['sync', '--file-system', '--', path], {
    env: { ...inherit, LC_ALL: 'C' },
    signal,
    timeoutMs: SYNC_MS,
  });
  if (result.ended === 'abort') signal.throwIfAborted();
  if (result.code !== 0)
    throw new Error(`sync ${path}: ${result.stderr.trim() || (result.ended ?? result.signal)}`);
}

/**
 * Makes a folder that only the agent's own user can enter. An existing one that others can enter,
 * of an earlier version, is tightened.
 */
export async function makePrivate(path: string): Promise<void> {
  await mkdir(path, { recursive: true, mode: 0o700 });
  if (((await stat(path)).mode & 0o777) !== 0o700) await chmod(path, 0o700);
}

/**
 * Removes a folder with its contents and returns the freed bytes. A file with another hard link
 * frees none.
 */
export async function removeTree(path: Buffer | string): Promise<number> {
  const base = typeof path === 'string' ? Buffer.from(path) : path;
  const entries = await nullIfMissing(readdir(base, { encoding: 'buffer', withFileTypes: true }));
  if (entries === null) return 0;
  let freed = 0;
  await inParallel(entries, 16, async (entry) => {
    const child = Buffer.concat([base, SLASH, entry.name]);
    if (entry.isDirectory()) {
      freed += await removeTree(child);
      return;
    }
    const stat = await nullIfMissing(lstat(child));
    if (stat === null) return;
    await nullIfMissing(unlink(child));
    if (stat.nlink === 1) freed += stat.blocks * 512;
  });
  await nullIfMissing(rmdir(base));
  return freed;
}
const SLASH = Buffer.from('/');

/**
 * Runs `work` on each item, at most `limit` at once. The first failure stops new items; running
 * items are awaited.
 */
export async function inParallel<T>(
  items: Iterable<T> | AsyncIterable<T>,
  limit: number,
  work: (item: T) => Promise<void>,
): Promise<void> {
  const source =
    Symbol.asyncIterator in items ? items[Symbol.asyncIterator]() : items[Symbol.iterator]();
  let failed = false;
  // An async generator queues its calls, so several workers can call it.
  const one = async (): Promise<void> => {
    while (!failed) {
      const next = await source.next();
      if (next.done === true) return;
      await work(next.value);
    }
  };
  const workers = Array.from({ length: limit }, () =>
    one().catch((error: unknown) => {
      failed = true;
      throw error;
    }),
  );
  const results = await Promise.allSettled(workers);
  // A generator that was not read to its end holds an open file.
  await source.return?.();
  const rejected = results.find((r) => r.status === 'rejected');
  if (rejected !== undefined) throw rejected.reason;
}
