/**
 * Makes room for a copy by evicting the least recently used versions. The limits are MAX_STORAGE and the size of the disk. Space that
 * other copies have reserved counts as used.
 */
import { planEviction, type Watermarks } from '@berth/wire/eviction';
import type { CachedDataset } from '@berth/wire/node';
import type { Logger } from '@berth/kit/log';
import type { Locks } from '../locks.ts';
import type { Reservation, StorageMeter } from '../storage.ts';
import { TaskFailure } from '../tools/failures.ts';
import type { Evict } from './evict.ts';
import { keyOf } from './layout.ts';
import type { SweepMounts } from './sweep-mounts.ts';
import type { Recopyable } from './recopyable.ts';
import type { Mounts } from './mounts.ts';
import type { CachedVersion, Versions } from './versions.ts';
import { sizeText } from './format.ts';

export type RoomDeps = {
  storage: StorageMeter;
  versions: Versions;
  mounts: Mounts;
  evict: Evict;
  sweepMounts: SweepMounts;
  recopyableVersions: Recopyable;
  locks: Locks;
  isProtected: (key: string) => boolean;
  watermarks: Watermarks;
  log: Logger;
};
/**
 * Reserves `bytes` on the disk. Throws TaskFailure no_room. It has then evicted nothing, except if versions share files: their eviction
 * frees less than the sum of their sizes, which only shows afterwards.
 */
export type MakeRoom = (bytes: number, signal: AbortSignal, logLine: (text: string) => void) => Promise<Reservation>;

export function createMakeRoom(deps: RoomDeps): MakeRoom {
  const { storage, versions, mounts, evict, sweepMounts, recopyableVersions, locks, isProtected, watermarks, log } = deps;

  async function candidates(refused: ReadonlySet<string>, recopyable: ReadonlySet<string>): Promise<CachedDataset[]> {
    const pinned = await mounts.pinned();
    return (await versions.list()).map((v) => {
      const key = keyOf(v.datasetId, v.version);
      const isTaken = isProtected(key) || refused.has(key);
      return candidateOf(v, { pinned: pinned.has(key) || isTaken, recopyable: recopyable.has(key) && !isTaken });
    });
  }
  async function make(bytes: number, signal: AbortSignal, logLine: (text: string) => void): Promise<void> {
    /** Versions that came into use after the candidates were listed. */
    const refused = new Set<string>();
    let recopyable: ReadonlySet<string> = new Set();
    for (let swept = false; ; ) {
      const now = await storage.now(signal);
      const eviction = planEviction({ cached: await candidates(refused, recopyable), ...now, wanted: bytes, watermarks });
      // The sweep asks the engine, so it runs only if a version must be evicted.
      if (!swept && (eviction.evict.length > 0 || !eviction.enough)) {
        swept = true;
        await sweepMounts(signal).catch((err: unknown) => {
          signal.throwIfAborted();
          log.warn({ err }, 'listing containers failed; all mount folders stay');
        });
        await evict.removeLeftovers();
        // The list of the control plane must be fresh, because it decides about an eviction.
        recopyable = await recopyableVersions.keys(0, signal);
        continue;
      }
      if (!eviction.enough) throw noRoom(bytes, now, eviction);
      if (eviction.evict.length === 0) return;
      for (const c of eviction.evict) {
        signal.throwIfAborted();
        const freed = await evictOne(c, signal, logLine);
        if (freed === null) refused.add(keyOf(c.dataset_id, c.version));
        else storage.add(-freed);
      }
      // Versions share files, and a shared file is freed with the last of them: compare again with what is free now.
      if (bytes <= (await storage.now(signal)).free) return;
    }
  }
  async function evictOne(c: CachedDataset, signal: AbortSignal, logLine: (text: string) => void): Promise<number | null> {
    if (c.pinned !== true) return evict.version(c.dataset_id, c.version);
    const name = (await versions.get(c.dataset_id, c.version))?.name ?? c.dataset_id;
    await recopyableVersions.release(c.dataset_id, c.version, signal);
    const freed = await evict.version(c.dataset_id, c.version);
    if (freed !== null)
      logLine(
        `evicted ${name} v${c.version} (${sizeText(c.bytes)}), which was kept for a rollback, to make room; a rollback copies it again`,
      );
    return freed;
  }
  return async (bytes, signal, logLine) => {
    // One budget for all: the second request must see the reservation of the first.
    const unlock = await locks.acquire('room for a dataset', signal);
    try {
      await make(bytes, signal, logLine);
      return storage.reserve(bytes);
    } finally {
      unlock();
    }
  };
}

const candidateOf = (v: CachedVersion, flags: { pinned: boolean; recopyable: boolean }): CachedDataset => ({
  dataset_id: v.datasetId,
  version: v.version,
  bytes: v.bytes,
  last_used_at: v.last_used_at,
  ...flags,
});

const noRoom = (bytes: number, now: { max: number; free: number }, eviction: { freed: number; pinned: number }): TaskFailure =>
  new TaskFailure(
    'no_room',
    `the copy needs ${sizeText(bytes)}; ${sizeText(Math.max(0, now.free))} of ${sizeText(now.max)} are free, ` +
      `${sizeText(eviction.freed)} could be evicted, ${sizeText(eviction.pinned)} are in use or kept for the last releases`,
  );
