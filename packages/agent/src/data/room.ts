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
import type { Kept } from './kept.ts';
import type { Mounts } from './mounts.ts';
import type { CachedVersion, Versions } from './versions.ts';
import { sizeText } from './say.ts';

export type RoomDeps = {
  storage: StorageMeter;
  versions: Versions;
  mounts: Mounts;
  evict: Evict;
  sweepMounts: SweepMounts;
  kept: Kept;
  locks: Locks;
  isHeld: (key: string) => boolean;
  watermarks: Watermarks;
  log: Logger;
};
/** Reserves `bytes` on the disk. TaskFailure no_room; nothing is evicted then, but where what versions share made less room than their sizes say. */
export type MakeRoom = (bytes: number, signal: AbortSignal, say: (text: string) => void) => Promise<Reservation>;

export function createMakeRoom(deps: RoomDeps): MakeRoom {
  const { storage, versions, mounts, evict, sweepMounts, kept, locks, isHeld, watermarks, log } = deps;

  async function candidates(refused: ReadonlySet<string>, recopyable: ReadonlySet<string>): Promise<CachedDataset[]> {
    const pinned = await mounts.pinned();
    return (await versions.list()).map((v) => {
      const key = keyOf(v.datasetId, v.version);
      const isTaken = isHeld(key) || refused.has(key);
      return candidateOf(v, { pinned: pinned.has(key) || isTaken, recopyable: recopyable.has(key) && !isTaken });
    });
  }
  async function make(bytes: number, signal: AbortSignal, say: (text: string) => void): Promise<void> {
    /** Somebody has taken hold of them since they were looked at. */
    const refused = new Set<string>();
    let recopyable: ReadonlySet<string> = new Set();
    for (let swept = false; ; ) {
      const now = await storage.now(signal);
      const plan = planEviction({ cached: await candidates(refused, recopyable), ...now, wanted: bytes, watermarks });
      // Only where something has to go: it asks the engine.
      if (!swept && (plan.evict.length > 0 || !plan.enough)) {
        swept = true;
        await sweepMounts(signal).catch((err: unknown) => {
          signal.throwIfAborted();
          log.warn({ err }, 'what containers mount cannot be looked at; everything mounted so far is kept');
        });
        await evict.leftovers();
        // Asks the control plane too: looked at when it decides, and not as it was a minute ago.
        recopyable = await kept.recopyable(0, signal);
        continue;
      }
      if (!plan.enough) throw noRoom(bytes, now, plan);
      if (plan.evict.length === 0) return;
      for (const c of plan.evict) {
        signal.throwIfAborted();
        const freed = await evictOne(c, signal, say);
        if (freed === null) refused.add(keyOf(c.dataset_id, c.version));
        else storage.add(-freed);
      }
      // What several versions share is free only with the last of them: looked at again, with what is really free now.
      if (bytes <= (await storage.now(signal)).free) return;
    }
  }
  async function evictOne(c: CachedDataset, signal: AbortSignal, say: (text: string) => void): Promise<number | null> {
    if (c.pinned !== true) return evict.version(c.dataset_id, c.version);
    const name = (await versions.get(c.dataset_id, c.version))?.name ?? c.dataset_id;
    await kept.release(c.dataset_id, c.version, signal);
    const freed = await evict.version(c.dataset_id, c.version);
    if (freed !== null)
      say(`removed ${name} v${c.version} (${sizeText(c.bytes)}), kept for a rollback, to make room: a rollback would copy it again`);
    return freed;
  }
  return async (bytes, signal, say) => {
    // One budget: who asks second sees what the first was promised.
    const unlock = await locks.hold('room for a dataset', signal);
    try {
      await make(bytes, signal, say);
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

const noRoom = (bytes: number, now: { max: number; free: number }, plan: { freed: number; pinned: number }): TaskFailure =>
  new TaskFailure(
    'no_room',
    `${sizeText(bytes)} to copy, ${sizeText(Math.max(0, now.free))} free of ${sizeText(now.max)}; ` +
      `${sizeText(plan.freed)} could go, ${sizeText(plan.pinned)} are in use or kept for the last releases`,
  );
