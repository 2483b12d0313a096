/** The proof that what was copied is what the manifest says: each file's size and SHA-256, read back from this node's disk. */
import { chmod, lstat } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import { createSha256Pool, type FileToHash } from '@berth/kit/sha256-files';
import { inParallel, orNull } from './disk.ts';
import { type Expected, pathIn, readProof } from './plan.ts';

type File = FileToHash & { expected: Expected };

/** A node has other work to do. */
const WORKERS = Math.min(4, Math.ceil(availableParallelism() / 2));

/**
 * Paths (encoded) of the files that are not as the proof says; missing ones too. Sets the modes that a version has: 0444, and
 * 0555 for what is executable. Rejects on abort and when our own disk cannot be read.
 */
export async function verify(folder: string, proof: string, signal: AbortSignal): Promise<Set<string>> {
  const wrong = new Set<string>();
  let unreadable: string | null = null;
  const pool = createSha256Pool<File>({ workers: WORKERS }, ({ expected }, result) => {
    if (result.kind === 'error') unreadable ??= `${expected.path}: ${result.code}`;
    else if (result.kind === 'changed' || Buffer.from(result.sha256).toString('hex') !== expected.checksum) wrong.add(expected.path);
  });
  const close = (): void => pool.close();
  signal.addEventListener('abort', close, { once: true });
  try {
    await inParallel(readProof(proof), 16, async (expected) => {
      const path = pathIn(folder, expected.path);
      const stat = await orNull(lstat(path));
      if (stat === null || !stat.isFile() || stat.size !== expected.size) return void wrong.add(expected.path);
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
  if (unreadable !== null) throw new Error(`a file that was just copied cannot be read: ${String(unreadable)}`);
  return wrong;
}
