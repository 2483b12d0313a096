/**
 * Selects the cached datasets that a node evicts to make room. Unpinned datasets go first, least recently used first (the contract
 * requires this order). Then go datasets that only kept releases pin and that can be copied from the share again. Mounted datasets
 * and versions that exist only in the cache are never evicted.
 * The module is pure: the agent evicts with it, and the control plane shows the same result beforehand.
 */
import type { CachedDataset } from './node.ts';

/**
 * Fractions of the storage that the cache can use. Eviction starts when usage exceeds `high` and continues down to `low`, so that a
 * full cache does not evict for each small request. Space that other programs use on the same disk does not count as the cache's
 * storage; otherwise a disk that they fill would empty the cache.
 */
export type Watermarks = { high: number; low: number };
export const WATERMARKS: Watermarks = { high: 0.9, low: 0.8 };

export type EvictionQuestion<C extends CachedDataset = CachedDataset> = {
  cached: readonly C[];
  /** Bytes that are free now. */
  free: number;
  /** Bytes that must be free. */
  wanted: number;
  /** Bytes of storage in total. */
  max: number;
  watermarks?: Watermarks;
};
export type Eviction<C extends CachedDataset = CachedDataset> = {
  evict: C[];
  freed: number;
  /** Bytes that cannot be evicted. */
  pinned: number;
  /** True if `wanted` bytes are free after the eviction. */
  enough: boolean;
};

/** Returns the unpinned datasets, least recently used first. The order is total, so that agent and control plane agree on it. */
export const evictionOrder = <C extends CachedDataset>(cached: readonly C[]): C[] => oldestFirst(cached.filter((c) => c.pinned !== true));

const oldestFirst = <C extends CachedDataset>(cached: readonly C[]): C[] =>
  cached.toSorted(
    (a, b) =>
      Date.parse(a.last_used_at) - Date.parse(b.last_used_at) ||
      compare(a.dataset_id, b.dataset_id) ||
      // Evict the older version of a dataset before the newer one.
      a.version - b.version,
  );

/** True for a dataset that is never evicted: it is mounted, or it is the only copy of its version. */
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
