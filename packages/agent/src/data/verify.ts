/**
 * Verifies a copy against the manifest: reads each file back from this node's disk, and compares
 * size and SHA-256.
 */
import { chmod, lstat } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import { createSha256Pool, type FileToHash } from '@berth/kit/sha256-files';
import { inParallel, nullIfMissing } from '../file-system.ts';
import { type Expected, pathIn, readExpected } from './staging.ts';

type File = FileToHash & { expected: Expected };

/** At most half of the cores, so that containers have the rest. */
const WORKERS = Math.min(4, Math.ceil(availableParallelism() / 2));

/**
 * Returns the encoded paths of files that are missing or differ. Sets the modes of the version's
 * files: 0444, or 0555 for executables. Rejects on abort, or if the node's own disk cannot be read.
 */
export async function verifyCopy(
  folder: string,
  expectedList: string,
  signal: AbortSignal,
): Promise<Set<string>> {
  const wrong = new Set<string>();
  let unreadable: string | null = null;
  const pool = createSha256Pool<File>({ workers: WORKERS }, ({ expected }, result) => {
    if (result.kind === 'error') unreadable ??= `${expected.path}: ${result.code}`;
    else if (
      result.kind === 'changed' ||
      Buffer.from(result.sha256).toString('hex') !== expected.checksum
    )
      wrong.add(expected.path);
  });
  const close = (): void => pool.close();
  signal.addEventListener('abort', close, { once: true });
  try {
    await inParallel(readExpected(expectedList), 16, async (expected) => {
      const path = pathIn(folder, expected.path);
      const stat = await nullIfMissing(lstat(path));
      if (stat === null || !stat.isFile() || stat.size !== expected.size)
        return void wrong.add(expected.path);
      const mode = expected.executable ? 0o555 : 0o444;
      if ((stat.mode & 0o7777) !== mode) await chmod(path, mode);
      await pool.add({ path, size: stat.size, expected });
    });
    await pool.drain();
  } catch (error) {
    signal.throwIfAborted();
    throw error;
  } finally {
    signal.removeEventListener('abort', close);
    pool.close();
  }
  signal.throwIfAborted();
  if (unreadable !== null)
    throw new Error(`reading a copied file back from the disk failed: ${String(unreadable)}`);
  return wrong;
}
