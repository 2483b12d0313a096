/**
 * Index of the datasets that nodes have cached, so that placement over 10,000 nodes takes
 * milliseconds. Each dataset version has a slot, the cache of a node is a row of slots, and one
 * array holds all rows. The index rebuilds a row when its node reports a changed list. An unchanged
 * report is the same array object (store/memory/node-memory.ts), so comparing by identity finds
 * every change.
 */
import { mustStay } from '@berth/wire/eviction';
import type { CachedDataset } from '@berth/wire/node';

type Cached = readonly CachedDataset[];

export type CacheIndex = {
  /** Returns the slot of a version of a dataset. */
  slot(datasetId: string, version: number): number;
  /** Updates the rows. Rows and slots are valid until the next call. */
  rows(nodes: readonly { cached: Cached }[]): Rows;
};
/**
 * Row i is data[start[i]] to data[start[i] + length[i] - 1]. The entries of a row are distinct
 * slots below `slots`. `evictable` has for each entry the bytes that evicting it frees (0 if it
 * must stay); `evictableTotal[i]` is their sum for row i.
 */
export type Rows = {
  data: Int32Array;
  evictable: Float64Array;
  start: Int32Array;
  length: Int32Array;
  evictableTotal: Float64Array;
  slots: number;
};

/**
 * The index drops all slots after this many versions, because the number of versions is unbounded.
 */
const MAX_SLOTS = 1_000_000;

export function createCacheIndex(): CacheIndex {
  let slotsOf = new Map<string, Map<number, number>>();
  let count = 0;
  /** The reported list from which each row was built. */
  let lists: Cached[] = [];
  let [data, evictable, evictableTotal] = [
    new Int32Array(0),
    new Float64Array(0),
    new Float64Array(0),
  ];
  let used = 0;
  let [start, length, capacity] = [new Int32Array(0), new Int32Array(0), new Int32Array(0)];

  function slot(datasetId: string, version: number): number {
    let versions = slotsOf.get(datasetId);
    if (versions === undefined) slotsOf.set(datasetId, (versions = new Map()));
    const existing = versions.get(version);
    if (existing !== undefined) return existing;
    versions.set(version, count);
    return count++;
  }
  /**
   * Returns the slots of a report with their evictable bytes. If a version occurs twice, its first
   * entry counts.
   */
  function rowOf(cached: Cached): Map<number, number> {
    const row = new Map<number, number>();
    for (const c of cached) {
      const s = slot(c.dataset_id, c.version);
      if (!row.has(s)) row.set(s, mustStay(c) ? 0 : c.bytes);
    }
    return row;
  }

  /** Returns false if no space is left in `data`. */
  function write(i: number, cached: Cached): boolean {
    const row = rowOf(cached);
    if (row.size > (capacity[i] as number)) {
      if (used + row.size > data.length) return false;
      start[i] = used;
      capacity[i] = row.size;
      used += row.size;
    }
    let at = start[i] as number;
    let total = 0;
    for (const [s, bytes] of row) {
      data[at] = s;
      evictable[at++] = bytes;
      total += bytes;
    }
    length[i] = row.size;
    evictableTotal[i] = total;
    lists[i] = cached;
    return true;
  }

  function rebuild(nodes: readonly { cached: Cached }[]): void {
    const total = nodes.reduce((sum, node) => sum + node.cached.length, 0);
    // Twice the needed size leaves space for growing rows, so rebuilds are rare.
    data = new Int32Array(2 * total + 1024);
    evictable = new Float64Array(data.length);
    evictableTotal = new Float64Array(nodes.length);
    [start, length, capacity] = [
      new Int32Array(nodes.length),
      new Int32Array(nodes.length),
      new Int32Array(nodes.length),
    ];
    lists = [];
    used = 0;
    nodes.forEach((node, i) => write(i, node.cached));
  }

  return {
    slot,
    rows(nodes) {
      if (count > MAX_SLOTS) [slotsOf, count, lists] = [new Map(), 0, []];
      if (lists.length !== nodes.length) rebuild(nodes);
      for (let i = 0; i < nodes.length; i++) {
        const { cached } = nodes[i] as { cached: Cached };
        if (lists[i] === cached || write(i, cached)) continue;
        rebuild(nodes);
        break;
      }
      return { data, evictable, start, length, evictableTotal, slots: count };
    },
  };
}
