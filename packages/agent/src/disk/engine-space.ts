/**
 * Measures how much space images and build cache of the engine use and how much can be evicted, and
 * evicts them.
 */
import { stat, statfs } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { DiskStep } from '@berth/wire/eviction';
import type { CachedDataset } from '@berth/wire/node';
import { AbandonedError, orAbandon } from '../abandon.ts';
import type { EvictableImages, ImageCandidate } from './evictable-images.ts';
import type { EngineClient } from '../engine/engine-client.ts';
import { engineUse, type EngineUse, pruneBuildCache } from '../engine/engine-use.ts';

type EngineDisk = {
  free: number;
  total: number;
  /** True if the engine's disk is not the disk of SVC_ROOT. */
  isOwn: boolean;
};
export type EngineContents = EngineUse & {
  /** Images that can be evicted, in order; empty if `disk` is null. */
  candidates: ImageCandidate[];
  /** The disk of the engine’s data folder; null if this machine cannot see the folder. */
  disk: EngineDisk | null;
};
export type EngineStep = Exclude<DiskStep<CachedDataset, ImageCandidate>, { kind: 'dataset' }>;
export type EngineSpace = {
  /** Returns the last count; null before the first count, and after a failed one. */
  last(): EngineContents | null;
  /**
   * Tells whether the last count is current: no image or build cache was removed since it began.
   */
  isCurrent(): boolean;
  /**
   * Counts images and build cache. Rejects if the engine does not answer, because an unknown use is
   * not zero. A count takes minutes on a full disk, so all callers share a running count. A current
   * count that is at most `maxAgeMs` old is reused.
   */
  count(signal: AbortSignal, maxAgeMs?: number): Promise<EngineContents>;
  /** Call this after a pull: adds these bytes to the last count. */
  grew(bytes: number): void;
  /** Reserves the bytes that a pull is about to add. Call the returned function after the pull. */
  reserve(bytes: number): () => void;
  /** Returns the bytes that running pulls are about to add. */
  reserved(): number;
  /** Call this after a removal from the engine: the last count is then no longer current. */
  changed(): void;
  /**
   * Evicts an image or build cache. Returns false if the image is in use now, or if there was no
   * build cache to remove.
   */
  evict(step: EngineStep, signal: AbortSignal): Promise<boolean>;
};

/** Maximum time in ms to wait for a count that an earlier caller started: no count takes longer. */
const WAIT_MS = 20 * 60_000;

export function createEngineSpace({
  engine,
  images,
  root,
}: {
  engine: Pick<EngineClient, 'call'>;
  images: EvictableImages;
  /** The setting SVC_ROOT. */
  root: string;
}): EngineSpace {
  let last: EngineContents | null = null;
  let countedAt = 0;
  let reserved = 0;
  /** Number of changes so far, and their number when the last count began. */
  let [changes, changesThen] = [0, 0];
  let open: { counting: Promise<EngineContents>; changes: number; signal: AbortSignal } | null =
    null;

  async function countNow(signal: AbortSignal): Promise<EngineContents> {
    const before = changes;
    try {
      const use = await engineUse(engine, signal);
      const disk = use.root === null ? null : await diskOf(use.root, root);
      // An image on a disk that this machine cannot see is never evicted, so do not ask the
      // registry about it.
      last = { ...use, candidates: disk === null ? [] : await images.list(signal), disk };
      [countedAt, changesThen] = [performance.now(), before];
      return last;
    } catch (error) {
      last = null;
      throw error;
    }
  }
  async function count(signal: AbortSignal, maxAgeMs = 0): Promise<EngineContents> {
    for (;;) {
      signal.throwIfAborted();
      if (last !== null && changes === changesThen && performance.now() - countedAt < maxAgeMs)
        return last;
      if (open === null) {
        open = { counting: countNow(signal).finally(() => (open = null)), changes, signal };
        return open.counting;
      }
      const other = open;
      // Count again if the count that was waited for began before a change, or if the task that
      // started it has ended.
      const isUsable = (): boolean => other.changes === changes && !other.signal.aborted;
      try {
        const contents = await orAbandon(other.counting, signal, WAIT_MS, 0);
        if (isUsable()) return contents;
      } catch (error) {
        if (signal.aborted || error instanceof AbandonedError || isUsable()) throw error;
      }
    }
  }
  return {
    last: () => last,
    isCurrent: () => changes === changesThen,
    count,
    changed: () => void (changes += 1),
    grew(bytes) {
      if (last !== null) last = { ...last, images: (last.images ?? 0) + bytes };
    },
    reserve(bytes) {
      let held = bytes;
      reserved += held;
      return () => {
        reserved -= held;
        held = 0;
      };
    },
    reserved: () => reserved,
    async evict(step, signal) {
      try {
        return await (step.kind === 'image'
          ? images.evict(step.image, signal)
          : pruneBuildCache(engine, step.keep, signal));
      } finally {
        changes += 1;
      }
    },
  };
}

async function diskOf(folder: string, other: string): Promise<EngineContents['disk']> {
  try {
    const [{ dev }, { blocks, bavail, bsize }] = await Promise.all([stat(folder), statfs(folder)]);
    return { free: bavail * bsize, total: blocks * bsize, isOwn: dev !== (await deviceOf(other)) };
  } catch (error) {
    // Return null: the agent runs in a container without the folder, the engine is on a remote
    // machine, or this user cannot read the folder.
    if (['ENOENT', 'EACCES'].includes((error as NodeJS.ErrnoException).code ?? '')) return null;
    throw error;
  }
}

/** Returns the device of a path. SVC_ROOT is created only with the first dataset. */
async function deviceOf(path: string): Promise<number> {
  try {
    return (await stat(path)).dev;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT' || path === '/') throw error;
    return deviceOf(dirname(path));
  }
}
