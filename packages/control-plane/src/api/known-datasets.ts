/**
 * Which datasets there are, in memory: ten thousand nodes say every 30 s what they have of them. Read again after a change, and now
 * and then, since word from another control plane may be lost.
 */
import type { Changes } from '../domain/changes.ts';
import type { Stores } from '../domain/stores.ts';

const OLDEST_MS = 60_000;

export function createKnownDatasets(stores: Pick<Stores, 'datasets'>, changes: Changes) {
  let known: Promise<ReadonlySet<string>> | null = null;
  let readAt = Number.NEGATIVE_INFINITY;
  changes.on('datasets', () => void (known = null));

  function ids(): Promise<ReadonlySet<string>> {
    if (known === null || performance.now() - readAt > OLDEST_MS) {
      readAt = performance.now();
      const reading = stores.datasets.ids().then((all) => new Set(all));
      known = reading;
      // One that failed is not kept.
      reading.catch(() => void (known === reading && (known = null)));
    }
    return known;
  }

  return {
    /** Of those that a node has, the ones that are no more. */
    async gone(cached: readonly { dataset_id: string }[]): Promise<string[]> {
      if (cached.length === 0) return [];
      const there = await ids();
      return [...new Set(cached.map((c) => c.dataset_id))].filter((id) => !there.has(id));
    },
  };
}
