/**
 * Compares the volumes that agents report with the database. Most reports equal the one before and concern no copy that is to be
 * deleted, so they cost no query: 10,000 nodes register every 30 s.
 */
import type { ReportedCopy } from '@berth/wire/volume';
import { LRUCache } from 'lru-cache';
import type { Stores, VolumeWork } from '../domain/stores.ts';
import { growingTo } from './lru.ts';

const NOTHING: VolumeWork = { remove: [], setAside: [] };
const MAX_NODES = 20_000;
/** Another control plane may have requested a deletion. */
const READ_AGAIN_MS = 5_000;

export function createVolumeReports(stores: Pick<Stores, 'volumes'>, now: () => number) {
  /** The last report that was compared, by node. */
  const compared = new LRUCache<string, string>(growingTo(MAX_NODES));
  let deleting: Promise<ReadonlySet<string>> | null = null;
  let readAt = Number.NEGATIVE_INFINITY;

  function nodesThatDelete(): Promise<ReadonlySet<string>> {
    if (deleting === null || performance.now() - readAt > READ_AGAIN_MS) {
      readAt = performance.now();
      const reading = stores.volumes.nodesThatDelete();
      deleting = reading;
      reading.catch(() => void (deleting === reading && (deleting = null)));
    }
    return deleting;
  }

  /** Returns what the node should do. `reported`: absent if the agent reports no volumes. */
  return async (node: { id: string; hostname: string }, reported: readonly ReportedCopy[] | undefined): Promise<VolumeWork> => {
    if (reported === undefined) return NOTHING;
    const text = JSON.stringify([node.hostname, reported]);
    if (compared.get(node.id) === text && !(await nodesThatDelete()).has(node.id)) return NOTHING;
    const work = await stores.volumes.report(node, reported, now());
    // The node may not be able to do it at once, so its next report is compared again.
    if (work.remove.length + work.setAside.length === 0) compared.set(node.id, text);
    else compared.delete(node.id);
    return work;
  };
}
