/**
 * Which cached datasets leave a node for what is to come: least recently used first (contract: "cached datasets are first evicted by
 * LRU, oldest `last_used_at` first"), then what only kept releases pin and the share still has. Mounted data and versions that the
 * cache alone still has never leave. Pure; the agent evicts by it, the control plane shows it beforehand.
 */
import type { CachedDataset } from './node.ts';

/**
 * Shares of what the cache can have: beyond `high` something goes, until no more than `low` is used. So a full cache is not cleared
 * bit by bit. What others have filled of the same disk is no share of it: else a disk that they fill would empty the cache.
 */
export type Watermarks = { high: number; low: number };
export const WATERMARKS: Watermarks = { high: 0.9, low: 0.8 };

export type EvictionQuestion<C extends CachedDataset = CachedDataset> = {
  cached: readonly C[];
  /** Bytes that are free now, and that are wanted. */
  free: number;
  wanted: number;
  /** Bytes of storage in all. */
  max: number;
  watermarks?: Watermarks;
};
export type Eviction<C extends CachedDataset = CachedDataset> = {
  evict: C[];
  freed: number;
  /** Bytes that cannot go. */
  pinned: number;
  /** Whether there is room for what is wanted then. */
  enough: boolean;
};

/** Oldest use first; equal ones in one order, whoever asks. Pinned ones are left out. */
export const evictionOrder = <C extends CachedDataset>(cached: readonly C[]): C[] => oldestFirst(cached.filter((c) => c.pinned !== true));

const oldestFirst = <C extends CachedDataset>(cached: readonly C[]): C[] =>
  cached.toSorted(
    (a, b) =>
      Date.parse(a.last_used_at) - Date.parse(b.last_used_at) ||
      compare(a.dataset_id, b.dataset_id) ||
      // The older version of one dataset goes before the newer one.
      a.version - b.version,
  );

/** Never evicted: mounted, or the only copy of its version. */
export const mustStay = (c: CachedDataset): boolean => c.pinned === true && c.recopyable !== true;

const compare = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);
const sum = (cached: readonly CachedDataset[]): number => cached.reduce((total, c) => total + c.bytes, 0);

export function planEviction<C extends CachedDataset>({
  cached,
  free,
  wanted,
  max,
  watermarks = WATERMARKS,
}: EvictionQuestion<C>): Eviction<C> {
  const pinned = sum(cached.filter(mustStay));
  const share = Math.min(max, free + sum(cached));
  const usedThen = share - free + wanted;
  const evict: C[] = [];
  let freed = 0;
  if (usedThen > watermarks.high * share || free < wanted)
    for (const c of evictionOrder(cached)) {
      if (usedThen - freed <= watermarks.low * share && free + freed >= wanted) break;
      evict.push(c);
      freed += c.bytes;
    }
  for (const c of oldestFirst(cached.filter((row) => row.pinned === true && row.recopyable === true))) {
    if (free + freed >= wanted) break;
    evict.push(c);
    freed += c.bytes;
  }
  return { evict, freed, pinned, enough: free + freed >= wanted };
}
