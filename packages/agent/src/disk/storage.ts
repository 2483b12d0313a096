/**
 * Measures the capacity and free space of SVC_ROOT: `max_storage` and `free_storage` of a
 * registration. `du` counts the used bytes in a child process with a deadline, so that a hanging
 * disk does not block registrations. It counts hard-linked files once. Between two counts, copies
 * and evictions adjust the sum. A running copy reserves its full size in the budget, and on the
 * disk the bytes that it has not written yet.
 */
import { statfs } from 'node:fs/promises';
import { dirname } from 'node:path';
import { exec } from '@berth/kit/exec';
import type { Logger } from '@berth/kit/log';
import { orAbandon } from '../abandon.ts';

export type Storage = {
  max: number;
  /** Free bytes; null before the first count. */
  free: number | null;
};
/**
 * `budget`: bytes left of MAX_STORAGE. `disk`: bytes left on the disk. `free`: the smaller one.
 * They can be negative.
 */
export type CountedStorage = { max: number; free: number; budget: number; disk: number };
export type StorageOptions = {
  root: string;
  maxStorage: number | undefined;
  inherit: NodeJS.ProcessEnv;
  log: Logger;
};
export type Reservation = { wrote(bytes: number): void; release(): void };
export type StorageMeter = {
  /** Returns the last count. Waits at most 500 ms for a new one if the last is older than 5 min. */
  read(signal: AbortSignal): Promise<Storage>;
  /** Returns the used bytes of SVC_ROOT; null before the first count. */
  used(): number | null;
  /** Waits for the first count and rejects if it fails. */
  now(signal: AbortSignal): Promise<CountedStorage>;
  reserve(bytes: number): Reservation;
  /** Adds copied bytes, or subtracts freed bytes if negative. */
  add(bytes: number): void;
  /** Makes the next read count again. */
  stale(): void;
};

const DU_MS = 10 * 60_000;
/** Time in ms for a killed `du` to exit. */
const END_MS = 30_000;
const FRESH_MS = 5 * 60_000;

export function createStorage({ root, maxStorage, inherit, log }: StorageOptions): StorageMeter {
  let used: number | null = null;
  let countedAt = Number.NEGATIVE_INFINITY;
  let counting: Promise<void> | null = null;
  const reservations = new Set<{ bytes: number; written: number }>();
  const sum = (of: 'bytes' | 'written'): number =>
    [...reservations].reduce((total, r) => total + r[of], 0);

  async function count(signal: AbortSignal): Promise<void> {
    const result = await exec(
      ['du', '--summarize', '--one-file-system', '--block-size=1', '--', root],
      {
        env: { ...inherit, LC_ALL: 'C' },
        timeoutMs: DU_MS,
        signal,
      },
    );
    countedAt = performance.now();
    const bytes = /^(\d+)\t/.exec(result.stdout)?.[1];
    // If a file disappears during the count, du fails but its sum is still usable.
    if (bytes !== undefined && result.ended === null) used = Number(bytes) - sum('written');
    else if (/No such file or directory/.test(result.stderr)) used = 0;
    else
      log.warn(
        { stderr: result.stderr, ended: result.ended },
        'counting the used bytes of SVC_ROOT failed',
      );
  }
  const counted = (signal: AbortSignal): Promise<void> =>
    (counting ??= count(signal)
      .catch((err: unknown) => void (signal.aborted || log.warn({ err }, 'running du failed')))
      .finally(() => (counting = null)));
  async function firstCount(signal: AbortSignal): Promise<void> {
    for (let startedHere = false; used === null && !startedHere; ) {
      // If the task that started the count ended, its count ended too: then this task counts
      // itself.
      startedHere = counting === null;
      await orAbandon(counted(signal), signal, DU_MS + END_MS, 0);
    }
  }
  async function measure(): Promise<CountedStorage | { max: number; free: null }> {
    const disk = await statfsUpwards(root);
    const max = maxStorage ?? disk.size;
    if (used === null) return { max, free: null };
    const [budget, left] = [max - used - sum('bytes'), disk.free - sum('bytes') + sum('written')];
    return { max, free: Math.min(budget, left), budget, disk: left };
  }

  return {
    async read(signal) {
      if (counting === null && performance.now() - countedAt > FRESH_MS) {
        // A count usually takes milliseconds, so wait briefly: the first registration can then
        // include it.
        await Promise.race([counted(signal), new Promise((resolve) => setTimeout(resolve, 500))]);
      }
      const { max, free } = await measure();
      return { max, free: free === null ? null : Math.max(0, free) };
    },
    used: () => used,
    async now(signal) {
      await firstCount(signal);
      signal.throwIfAborted();
      const room = await measure();
      if (room.free === null)
        throw new Error(`counting the used bytes of ${root} failed; see the agent’s log`);
      return room;
    },
    reserve(bytes) {
      const reservation = { bytes, written: 0 };
      reservations.add(reservation);
      return {
        wrote: (written) => void (reservation.written = Math.min(bytes, written)),
        release: () => void reservations.delete(reservation),
      };
    },
    add(bytes) {
      if (used !== null) used = Math.max(0, used + bytes);
    },
    stale: () => void (countedAt = Number.NEGATIVE_INFINITY),
  };
}

/**
 * Reads the file system of the nearest existing folder, because SVC_ROOT is created only with the
 * first dataset.
 */
async function statfsUpwards(path: string): Promise<{ size: number; free: number }> {
  try {
    const s = await statfs(path);
    return { size: s.blocks * s.bsize, free: s.bavail * s.bsize };
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT' || path === '/') throw error;
    return statfsUpwards(dirname(path));
  }
}
