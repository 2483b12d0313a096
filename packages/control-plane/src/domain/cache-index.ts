/**
 * What nodes have cached, in a form that ten thousand of them can be asked within milliseconds: each dataset at one version has a
 * small number, a node's cache is a row of such numbers, and the rows lie one after the other in one array. A row is made anew when
 * its node reported something else: records are values, and a report that says the same as before is the same list
 * (store/memory/node-memory.ts). So nothing has to be told of a change, and an answer is never of yesterday.
 */
import { mustStay } from '@berth/wire/eviction';
import type { CachedDataset } from '@berth/wire/node';

type Cached = readonly CachedDataset[];

export type CacheIndex = {
  /** The number of a dataset at a version. */
  slot(datasetId: string, version: number): number;
  /** Brings the rows up to date; they are valid until the next call, and so are the numbers that were given after it. */
  rows(nodes: readonly { cached: Cached }[]): Rows;
};
/**
 * Row i: `data` from `start[i]`, `length[i]` numbers, each once; all are below `slots`. Beside each number, in `evictable`, the bytes
 * that leave with it, 0 for what must stay; `evictableTotal[i]` is their sum.
 */
export type Rows = {
  data: Int32Array;
  evictable: Float64Array;
  start: Int32Array;
  length: Int32Array;
  evictableTotal: Float64Array;
  slots: number;
};

/** Versions rise for ever: when so many have been seen, the numbers begin anew. */
const MAX_SLOTS = 1_000_000;

export function createCacheIndex(): CacheIndex {
  let numbers = new Map<string, Map<number, number>>();
  let count = 0;
  /** The list that each row was made of. */
  let lists: Cached[] = [];
  let [data, evictable, evictableTotal] = [new Int32Array(0), new Float64Array(0), new Float64Array(0)];
  let used = 0;
  let [start, length, room] = [new Int32Array(0), new Int32Array(0), new Int32Array(0)];

  function slot(datasetId: string, version: number): number {
    let versions = numbers.get(datasetId);
    if (versions === undefined) numbers.set(datasetId, (versions = new Map()));
    const there = versions.get(version);
    if (there !== undefined) return there;
    versions.set(version, count);
    return count++;
  }
  /** One that is named twice counts once, as it was named first. */
  function rowOf(cached: Cached): Map<number, number> {
    const row = new Map<number, number>();
    for (const c of cached) {
      const number = slot(c.dataset_id, c.version);
      if (!row.has(number)) row.set(number, mustStay(c) ? 0 : c.bytes);
    }
    return row;
  }

  /** False: there is no place left for it. */
  function write(i: number, cached: Cached): boolean {
    const row = rowOf(cached);
    if (row.size > (room[i] as number)) {
      if (used + row.size > data.length) return false;
      start[i] = used;
      room[i] = row.size;
      used += row.size;
    }
    let at = start[i] as number;
    let total = 0;
    for (const [number, bytes] of row) {
      data[at] = number;
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
    // Room for rows that grow, so that this is rare.
    data = new Int32Array(2 * total + 1024);
    evictable = new Float64Array(data.length);
    evictableTotal = new Float64Array(nodes.length);
    [start, length, room] = [new Int32Array(nodes.length), new Int32Array(nodes.length), new Int32Array(nodes.length)];
    lists = [];
    used = 0;
    nodes.forEach((node, i) => write(i, node.cached));
  }

  return {
    slot,
    rows(nodes) {
      if (count > MAX_SLOTS) [numbers, count, lists] = [new Map(), 0, []];
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
