/**
 * Measures the disk use of this node: `disk` of a registration (wire/node.ts). Runs in the
 * background, because the engine can take minutes to sum up its images.
 */
import { stat, statfs } from 'node:fs/promises';
import type { Logger } from '@berth/kit/log';
import { MAX_REPORTED_IMAGES, type NodeDisk } from '@berth/wire/node';
import type { EngineContents } from './engine-space.ts';

export type DiskUse = {
  /**
   * Returns the last count, or null before the first one. Starts a new count if the last one is
   * older than 5 min.
   */
  now(): NodeDisk | null;
  /** Returns the last count, or null before the first one. Does not start a count. */
  last(): NodeDisk | null;
  stop(): Promise<void>;
};
export type DiskUseDeps = {
  /** Folders whose file systems are measured: SVC_ROOT and the folders of the agent’s state. */
  folders: readonly string[];
  /** Size of the datasets in bytes; null if unknown. */
  datasets: () => number | null;
  engine: (signal: AbortSignal) => Promise<EngineContents>;
  /** Called after the first count, so that a registration reports it at once. */
  onFirst: () => void;
  /** Called after each count. */
  onCounted?: () => void;
  log: Logger;
};

const FRESH_MS = 5 * 60_000;

export function createDiskUse({
  folders,
  datasets,
  engine,
  onFirst,
  onCounted,
  log,
}: DiskUseDeps): DiskUse {
  const ending = new AbortController();
  let last: NodeDisk | null = null;
  let countedAt = Number.NEGATIVE_INFINITY;
  let counting: Promise<void> | null = null;

  async function count(): Promise<void> {
    let contents: EngineContents | null = null;
    try {
      contents = await engine(ending.signal);
    } catch (err) {
      if (ending.signal.aborted) return;
      log.warn({ err }, 'reading the size of images and build cache from the engine failed');
    }
    const root = contents?.root ?? null;
    const disks = await measure([...folders, ...(root === null ? [] : [root])]);
    if (disks === null) return;
    const parts = {
      datasets: datasets(),
      images: contents?.images ?? null,
      build_cache: contents?.build_cache ?? null,
    };
    const counted = (parts.datasets ?? 0) + (parts.images ?? 0) + (parts.build_cache ?? 0);
    const complete = parts.images !== null && parts.build_cache !== null;
    const first = last === null;
    const other = complete ? Math.max(0, disks.total - disks.free - counted) : null;
    last = { ...parts, other, ...disks, ...evictableOf(contents) };
    countedAt = performance.now();
    if (first) onFirst();
    onCounted?.();
  }

  return {
    now() {
      if (performance.now() - countedAt > FRESH_MS)
        counting ??= count()
          .catch((err: unknown) => log.warn({ err }, 'counting disk use failed'))
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

/**
 * Returns `evictable`; absent while the engine's disk is unknown: then none of its images is
 * evicted.
 */
function evictableOf(contents: EngineContents | null): Pick<NodeDisk, 'evictable'> {
  if (contents === null || contents.disk === null) return {};
  const { free, total, isOwn } = contents.disk;
  const images = contents.candidates
    .slice(0, MAX_REPORTED_IMAGES)
    .map(({ name, bytes, created_at, kept }) => ({ name, bytes, created_at, kept }));
  return {
    evictable: {
      build_cache: contents.build_cache_unused ?? 0,
      images,
      own_disk: isOwn ? { free, total } : null,
    },
  };
}

/** Measures each file system once. Returns null if none of the folders exists. */
async function measure(
  folders: readonly string[],
): Promise<{ free: number; total: number } | null> {
  const seen = new Map<number, { free: number; total: number }>();
  for (const folder of folders) {
    try {
      const { dev } = await stat(folder);
      const { blocks, bavail, bsize } = await statfs(folder);
      seen.set(dev, { free: bavail * bsize, total: blocks * bsize });
    } catch (error) {
      // SVC_ROOT is created only with the first dataset; the engine’s folder can be on another
      // machine, or unreadable.
      if (!['ENOENT', 'EACCES'].includes((error as NodeJS.ErrnoException).code ?? '')) throw error;
    }
  }
  if (seen.size === 0) return null;
  const sum = (of: 'free' | 'total'): number =>
    [...seen.values()].reduce((all, disk) => all + disk[of], 0);
  return { free: sum('free'), total: sum('total') };
}
