/** How much SVC_ROOT may hold and how much of that is free (contract "Node", INTERFACES.md `free_storage_bytes`). */
import { statfs } from 'node:fs/promises';
import { dirname } from 'node:path';
import { exec } from '@berth/kit/exec';
import type { Logger } from '@berth/kit/log';

export type Storage = { max: number /** Null: not known yet. */; free: number | null };
export type StorageOptions = { root: string; maxStorage: number | undefined; inherit: NodeJS.ProcessEnv; log: Logger };

const DU_MS = 60_000;
const FRESH_MS = 5 * 60_000;

/** A function that answers at once. What SVC_ROOT holds is counted in the background by a child with a deadline: a disk that hangs must not stop us from registering. */
export function createStorage({ root, maxStorage, inherit, log }: StorageOptions): (signal: AbortSignal) => Promise<Storage> {
  let used: number | null = null;
  let countedAt = 0;
  let counting: Promise<void> | null = null;

  async function count(signal: AbortSignal): Promise<void> {
    const result = await exec(['du', '--summarize', '--one-file-system', '--block-size=1', '--', root], {
      env: { ...inherit, LC_ALL: 'C' },
      timeoutMs: DU_MS,
      signal,
    });
    countedAt = Date.now();
    const bytes = /^(\d+)\t/.exec(result.stdout)?.[1];
    // A file that went away meanwhile gives an exit code and a good sum all the same.
    if (bytes !== undefined && result.ended === null) used = Number(bytes);
    else if (/No such file or directory/.test(result.stderr)) used = 0;
    else log.warn({ stderr: result.stderr, ended: result.ended }, 'what SVC_ROOT holds could not be counted');
  }

  return async (signal) => {
    const disk = await statfsUpwards(root);
    if (counting === null && Date.now() - countedAt > FRESH_MS) {
      counting = count(signal)
        .catch((err: unknown) => void (signal.aborted || log.warn({ err }, 'du could not be run')))
        .finally(() => (counting = null));
      // Mostly it takes milliseconds, and then the first registration has it.
      await Promise.race([counting, new Promise((resolve) => setTimeout(resolve, 500))]);
    }
    const max = maxStorage ?? disk.size;
    return { max, free: used === null ? null : Math.max(0, Math.min(max - used, disk.free)) };
  };
}

/** Of the nearest folder that exists: SVC_ROOT is made when the first dataset comes. */
async function statfsUpwards(path: string): Promise<{ size: number; free: number }> {
  try {
    const s = await statfs(path);
    return { size: s.blocks * s.bsize, free: s.bavail * s.bsize };
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT' || path === '/') throw error;
    return statfsUpwards(dirname(path));
  }
}
