/** Room for a copy: within MAX_STORAGE and the disk, with what is already promised to others taken off; made by evicting what was used least recently. */
import { planEviction, type Watermarks } from '@berth/wire/eviction';
import type { CachedDataset } from '@berth/wire/node';
import type { Logger } from '@berth/kit/log';
import type { Locks } from '../locks.ts';
import type { Reservation, StorageMeter } from '../storage.ts';
import { TaskFailure } from '../tools/failures.ts';
import type { Evict } from './evict.ts';
import { keyOf } from './layout.ts';
import type { SweepMounts } from './keep.ts';
import type { Mounts } from './mounts.ts';
import type { CachedVersion, Versions } from './versions.ts';
import { sizeText } from './say.ts';

export type RoomDeps = {
  storage: StorageMeter;
  versions: Versions;
  mounts: Mounts;
  evict: Evict;
  sweepMounts: SweepMounts;
  locks: Locks;
  isHeld: (key: string) => boolean;
  watermarks: Watermarks;
  log: Logger;
};
/** Reserves `bytes` on the disk. TaskFailure no_room; nothing is evicted then, but where what versions share made less room than their sizes say. */
export type MakeRoom = (bytes: number, signal: AbortSignal) => Promise<Reservation>;

export function createMakeRoom(deps: RoomDeps): MakeRoom {
  const { storage, versions, mounts, evict, sweepMounts, locks, isHeld, watermarks, log } = deps;

  async function candidates(refused: ReadonlySet<string>): Promise<CachedDataset[]> {
    const pinned = await mounts.pinned();
    return (await versions.list()).map((v) => candidateOf(v, (key) => pinned.has(key) || isHeld(key) || refused.has(key)));
  }
  async function make(bytes: number, signal: AbortSignal): Promise<void> {
    /** Somebody has taken hold of them since they were looked at. */
    const refused = new Set<string>();
    for (let swept = false; ; ) {
      const now = await storage.now(signal);
      const plan = planEviction({ cached: await candidates(refused), ...now, wanted: bytes, watermarks });
      // Only where something has to go: it asks the engine.
      if (!swept && (plan.evict.length > 0 || !plan.enough)) {
        swept = true;
        await sweepMounts(signal).catch((err: unknown) => {
          signal.throwIfAborted();
          log.warn({ err }, 'what containers mount cannot be looked at; everything mounted so far is kept');
        });
        await evict.leftovers();
        continue;
      }
      if (!plan.enough) throw noRoom(bytes, now, plan);
      if (plan.evict.length === 0) return;
      for (const { dataset_id, version } of plan.evict) {
        signal.throwIfAborted();
        const freed = await evict.version(dataset_id, version);
        if (freed === null) refused.add(keyOf(dataset_id, version));
        else storage.add(-freed);
      }
      // What several versions share is free only with the last of them: looked at again, with what is really free now.
      if (bytes <= (await storage.now(signal)).free) return;
    }
  }
  return async (bytes, signal) => {
    // One budget: who asks second sees what the first was promised.
    const unlock = await locks.hold('room for a dataset', signal);
    try {
      await make(bytes, signal);
      return storage.reserve(bytes);
    } finally {
      unlock();
    }
  };
}

const candidateOf = (v: CachedVersion, isPinned: (key: string) => boolean): CachedDataset => ({
  dataset_id: v.datasetId,
  version: v.version,
  bytes: v.bytes,
  last_used_at: v.last_used_at,
  pinned: isPinned(keyOf(v.datasetId, v.version)),
});

const noRoom = (bytes: number, now: { max: number; free: number }, plan: { freed: number; pinned: number }): TaskFailure =>
  new TaskFailure(
    'no_room',
    `${sizeText(bytes)} to copy, ${sizeText(Math.max(0, now.free))} free of ${sizeText(now.max)}; ` +
      `${sizeText(plan.freed)} could go, ${sizeText(plan.pinned)} are in use or kept for the last releases`,
  );
