/**
 * What takes room on the disks of this node: `disk` of a register (wire/node.ts). Counted in the background: the engine may take
 * minutes to add up its images.
 */
import { stat, statfs } from 'node:fs/promises';
import type { Logger } from '@berth/kit/log';
import type { NodeDisk } from '@berth/wire/node';
import type { EngineUse } from './tools/engine-use.ts';

export type DiskUse = {
  /** As counted last, null before the first count; begins another count when that is old. */
  now(): NodeDisk | null;
  /** As counted last, null before the first count; counts nothing. */
  last(): NodeDisk | null;
  stop(): Promise<void>;
};
export type DiskUseDeps = {
  /** Folders whose file systems count: where the datasets are, and the agent's own. */
  folders: readonly string[];
  /** Bytes of datasets; null while not known, or where the node takes none. */
  datasets: () => number | null;
  engineUse: (signal: AbortSignal) => Promise<EngineUse>;
  /** The first count is there: worth a register before the next one is due. */
  onFirst: () => void;
  log: Logger;
};

const FRESH_MS = 5 * 60_000;

export function createDiskUse({ folders, datasets, engineUse, onFirst, log }: DiskUseDeps): DiskUse {
  const ending = new AbortController();
  let last: NodeDisk | null = null;
  let countedAt = Number.NEGATIVE_INFINITY;
  let counting: Promise<void> | null = null;

  async function count(): Promise<void> {
    let use: EngineUse = { root: null, images: null, build_cache: null };
    try {
      use = await engineUse(ending.signal);
    } catch (err) {
      if (ending.signal.aborted) return;
      log.warn({ err }, 'the engine does not say what its images and its build cache take');
    }
    const disks = await measure([...folders, ...(use.root === null ? [] : [use.root])]);
    if (disks === null) return;
    const parts = { datasets: datasets(), images: use.images, build_cache: use.build_cache };
    const known = (parts.datasets ?? 0) + (parts.images ?? 0) + (parts.build_cache ?? 0);
    const complete = parts.images !== null && parts.build_cache !== null;
    const first = last === null;
    last = { ...parts, other: complete ? Math.max(0, disks.total - disks.free - known) : null, ...disks };
    countedAt = performance.now();
    if (first) onFirst();
  }

  return {
    now() {
      if (performance.now() - countedAt > FRESH_MS)
        counting ??= count()
          .catch((err: unknown) => log.warn({ err }, 'what the disks hold could not be counted'))
          .finally(() => (counting = null));
      return last;
    },
    last: () => last,
    async stop() {
      ending.abort();
      await counting;
    },
  };
}

/** Each file system once; null when none of the folders is there. */
async function measure(folders: readonly string[]): Promise<{ free: number; total: number } | null> {
  const seen = new Map<number, { free: number; total: number }>();
  for (const folder of folders) {
    try {
      const { dev } = await stat(folder);
      const { blocks, bavail, bsize } = await statfs(folder);
      seen.set(dev, { free: bavail * bsize, total: blocks * bsize });
    } catch (error) {
      // SVC_ROOT is made with the first dataset; the engine's root may be on another machine, or not ours to read.
      if (!['ENOENT', 'EACCES'].includes((error as NodeJS.ErrnoException).code ?? '')) throw error;
    }
  }
  if (seen.size === 0) return null;
  const sum = (of: 'free' | 'total'): number => [...seen.values()].reduce((all, disk) => all + disk[of], 0);
  return { free: sum('free'), total: sum('total') };
}
