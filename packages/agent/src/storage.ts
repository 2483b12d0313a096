/**
 * How much SVC_ROOT may hold and how much of that is free (contract "Node", INTERFACES.md `free_storage_bytes`).
 *
 * What it holds is counted by `du`, a file with several names once, in the background by a child with a deadline: a disk that
 * hangs must not stop us from registering. Between two counts it follows what is copied and deleted. Copies under way have
 * their room reserved: of the budget as a whole, of the disk what is not written yet.
 */
import { statfs } from 'node:fs/promises';
import { dirname } from 'node:path';
import { exec } from '@berth/kit/exec';
import type { Logger } from '@berth/kit/log';
import { orAbandon } from './abandon.ts';

export type Storage = { max: number /** Null: not known yet. */; free: number | null };
export type StorageOptions = { root: string; maxStorage: number | undefined; inherit: NodeJS.ProcessEnv; log: Logger };
export type Reservation = { wrote(bytes: number): void; release(): void };
export type StorageMeter = {
  /** Answers at once, as far as is known. */
  read(signal: AbortSignal): Promise<Storage>;
  /** Bytes that SVC_ROOT holds; null before the first count. */
  used(): number | null;
  /** Waits until it was counted; rejects when it cannot be. `free` may be negative. */
  now(signal: AbortSignal): Promise<{ max: number; free: number }>;
  reserve(bytes: number): Reservation;
  /** Something was added, or freed (negative). */
  add(bytes: number): void;
  /** Counts again at the next look. */
  stale(): void;
};

const DU_MS = 10 * 60_000;
/** How long an ended `du` may take to be gone. */
const END_MS = 30_000;
const FRESH_MS = 5 * 60_000;

export function createStorage({ root, maxStorage, inherit, log }: StorageOptions): StorageMeter {
  let used: number | null = null;
  let countedAt = 0;
  let counting: Promise<void> | null = null;
  const reservations = new Set<{ bytes: number; written: number }>();
  const sum = (of: 'bytes' | 'written'): number => [...reservations].reduce((total, r) => total + r[of], 0);

  async function count(signal: AbortSignal): Promise<void> {
    const result = await exec(['du', '--summarize', '--one-file-system', '--block-size=1', '--', root], {
      env: { ...inherit, LC_ALL: 'C' },
      timeoutMs: DU_MS,
      signal,
    });
    countedAt = Date.now();
    const bytes = /^(\d+)\t/.exec(result.stdout)?.[1];
    // A file that went away meanwhile gives an exit code and a good sum all the same.
    if (bytes !== undefined && result.ended === null) used = Number(bytes) - sum('written');
    else if (/No such file or directory/.test(result.stderr)) used = 0;
    else log.warn({ stderr: result.stderr, ended: result.ended }, 'what SVC_ROOT holds could not be counted');
  }
  const counted = (signal: AbortSignal): Promise<void> =>
    (counting ??= count(signal)
      .catch((err: unknown) => void (signal.aborted || log.warn({ err }, 'du could not be run')))
      .finally(() => (counting = null)));
  async function firstCount(signal: AbortSignal): Promise<void> {
    for (let ours = false; used === null && !ours; ) {
      // One that somebody else began ends with his task: then it is for us to count.
      ours = counting === null;
      await orAbandon(counted(signal), signal, DU_MS + END_MS, 0);
    }
  }
  async function look(): Promise<{ max: number; free: number | null }> {
    const disk = await statfsUpwards(root);
    const max = maxStorage ?? disk.size;
    const left = sum('bytes') - sum('written');
    return { max, free: used === null ? null : Math.min(max - used - sum('bytes'), disk.free - left) };
  }

  return {
    async read(signal) {
      if (counting === null && Date.now() - countedAt > FRESH_MS) {
        // Mostly it takes milliseconds, and then the first registration has it.
        await Promise.race([counted(signal), new Promise((resolve) => setTimeout(resolve, 500))]);
      }
      const { max, free } = await look();
      return { max, free: free === null ? null : Math.max(0, free) };
    },
    used: () => used,
    async now(signal) {
      await firstCount(signal);
      signal.throwIfAborted();
      const { max, free } = await look();
      if (free === null) throw new Error(`what ${root} holds could not be counted`);
      return { max, free };
    },
    reserve(bytes) {
      const mine = { bytes, written: 0 };
      reservations.add(mine);
      return { wrote: (written) => void (mine.written = Math.min(bytes, written)), release: () => void reservations.delete(mine) };
    },
    add(bytes) {
      if (used !== null) used = Math.max(0, used + bytes);
    },
    stale: () => void (countedAt = 0),
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
