/**
 * Compares the volumes that agents report with the database. Most reports equal the previous report
 * of the same node and require no work, so they cost no query: 10,000 nodes register every 30 s.
 */
import type { ReportedCopy } from '@berth/wire/volume';
import { LRUCache } from 'lru-cache';
import type { VolumeWork, VolumeStore } from '../domain/data/volume-store.ts';
import { growingTo } from './lru.ts';

const NOTHING: VolumeWork = { remove: [], setAside: [] };
const MAX_NODES = 20_000;
/** Read again after this time: a different control plane might have requested a deletion. */
const READ_AGAIN_MS = 5_000;
const COMPARE_AGAIN_MS = 10 * 60_000;

export type Deps = {
  volumes: Pick<VolumeStore, 'report' | 'unused'>;
  now: () => number;
};
export type VolumeReports = ReturnType<typeof createVolumeReports>;

export function createVolumeReports({ volumes: store, now }: Deps) {
  /**
   * The last report that was compared, by node. An entry expires, because another control plane
   * might have compared a different report since.
   */
  const compared = new LRUCache<string, { text: string; at: number }>(growingTo(MAX_NODES));
  let unused: Promise<ReadonlyMap<string, string>> | null = null;
  let readAt = Number.NEGATIVE_INFINITY;

  function unusedCopies(): Promise<ReadonlyMap<string, string>> {
    if (unused === null || performance.now() - readAt > READ_AGAIN_MS) {
      readAt = performance.now();
      const reading = store.unused();
      unused = reading;
      // If the read fails, the next call repeats it.
      reading.catch(() => void (unused === reading && (unused = null)));
    }
    return unused;
  }

  /** Returns the work for the node. `volumes`: absent if the agent reports none. */
  return async (
    node: { id: string; hostname: string },
    {
      volumes,
      removed_volumes,
    }: { volumes?: readonly ReportedCopy[]; removed_volumes?: readonly string[] },
  ): Promise<VolumeWork> => {
    if (volumes === undefined) return NOTHING;
    const text = JSON.stringify([
      node.hostname,
      volumes,
      removed_volumes,
      (await unusedCopies()).get(node.id) ?? '',
    ]);
    const last = compared.get(node.id);
    if (last?.text === text && performance.now() - last.at < COMPARE_AGAIN_MS) return NOTHING;
    const work = await store.report(node, volumes, now(), removed_volumes);
    // If there is work, compare the next report too: the node might not do the work at once, and
    // this node can take over a copy that belongs to a different node.
    if (work.remove.length + work.setAside.length === 0 && work.foreign !== true)
      compared.set(node.id, { text, at: performance.now() });
    else compared.delete(node.id);
    return work;
  };
}
