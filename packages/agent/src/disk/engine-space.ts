/**
 * The space of the container engine: how much images and build cache use, what of it can go, and
 * the eviction of it.
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
  /** SVC_ROOT is on another disk. */
  isOwn: boolean;
};
export type EngineContents = EngineUse & {
  /** Images that can go, in the order of eviction; none if `disk` is null. */
  candidates: ImageCandidate[];
  /** The disk of the engine’s data folder; null if this machine does not see the folder. */
  disk: EngineDisk | null;
};
export type EngineStep = Exclude<DiskStep<CachedDataset, ImageCandidate>, { kind: 'dataset' }>;
export type EngineSpace = {
  /** The last count; null before the first one, and after one that failed. */
  last(): EngineContents | null;
  /** True if nothing was removed since the last count began. */
  isCurrent(): boolean;
  /**
   * Rejects if the engine does not answer: what it has is then unknown, which is not the same as
   * nothing. A count takes minutes on a full disk, so all callers share an open one; one that is at
   * most `maxAgeMs` old does too, if it is current.
   */
  count(signal: AbortSignal, maxAgeMs?: number): Promise<EngineContents>;
  /** An image was pulled: the last count lacks about these bytes. */
  grew(bytes: number): void;
  /** A pull is about to add these bytes. Call the returned function when it has ended. */
  reserve(bytes: number): () => void;
  /** Bytes that pulls are about to add. */
  reserved(): number;
  /** Something was removed from the engine: the last count is not current. */
  changed(): void;
  /** Returns false if an image is in use now, or if there was no build cache to remove. */
  evict(step: EngineStep, signal: AbortSignal): Promise<boolean>;
};

/** Waits for another caller’s count no longer than its parts can take. */
const WAIT_MS = 20 * 60_000;

export function createEngineSpace({
  engine,
  images,
  root,
}: {
  engine: Pick<EngineClient, 'call'>;
  images: EvictableImages;
  /** SVC_ROOT. */
  root: string;
}): EngineSpace {
  let last: EngineContents | null = null;
  let countedAt = 0;
  let reserved = 0;
  /** Number of changes so far, and when the last count began. */
  let [changes, changesThen] = [0, 0];
  let open: { counting: Promise<EngineContents>; changes: number; signal: AbortSignal } | null =
    null;

  async function countNow(signal: AbortSignal): Promise<EngineContents> {
    const before = changes;
    try {
      const use = await engineUse(engine, signal);
      const disk = use.root === null ? null : await diskOf(use.root, root);
      // An image on a disk that this machine does not see is never evicted, so the registry is not
      // asked about it.
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
      // One that began before a change does not show it, and one whose own task ended has no
      // result: then count again.
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
    // The agent is in a container without the folder, the engine is on another machine, or the
    // folder is not readable for this user.
    if (['ENOENT', 'EACCES'].includes((error as NodeJS.ErrnoException).code ?? '')) return null;
    throw error;
  }
}

/** SVC_ROOT is created with the first dataset. */
async function deviceOf(path: string): Promise<number> {
  try {
    return (await stat(path)).dev;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT' || path === '/') throw error;
    return deviceOf(dirname(path));
  }
}
