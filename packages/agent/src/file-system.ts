/**
 * Handles the agent's own files: atomic writes, flushes, and removal with a count of the freed
 * bytes. File names are bytes.
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
 * Writes a file atomically (kit/write-file.ts). Creates its folder if necessary, even if a clean-up
 * of another process has just removed it.
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
    // A crash of the machine truncated the file: treat it as missing.
    return null;
  }
}

const SYNC_MS = 30 * 60_000;
/**
 * Flushes the whole file system of `path` in one call, instead of a hundred thousand calls for
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
 * Creates a folder that only the agent's user can enter. Restricts an existing folder of an older
 * version.
 */
export async function makePrivate(path: string): Promise<void> {
  await mkdir(path, { recursive: true, mode: 0o700 });
  if (((await stat(path)).mode & 0o777) !== 0o700) await chmod(path, 0o700);
}

/**
 * Removes a folder with its contents and returns the freed bytes. A file that has a second hard
 * link frees no bytes.
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
 * Runs `work` on each item, with at most `limit` items at once. After a failure, starts no new
 * items and waits for the running ones.
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
  // Close a generator that was not read to its end, because it holds an open file.
  await source.return?.();
  const rejected = results.find((r) => r.status === 'rejected');
  if (rejected !== undefined) throw rejected.reason;
}
