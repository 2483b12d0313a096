/**
 * Which datasets there are, in memory: ten thousand nodes say every 30 s what they have of them. Read again after a change, and now
 * and then, since word from another control plane may be lost.
 */
import type { Changes } from '../domain/changes.ts';
import type { Stores } from '../domain/stores.ts';

const OLDEST_MS = 60_000;
/** Kept in memory; a node names what it likes. */
const MOST_GONE = 10_000;

export function createKnownDatasets(stores: Pick<Stores, 'datasets'>, changes: Changes) {
  let known: Promise<ReadonlySet<string>> | null = null;
  let readAt = Number.NEGATIVE_INFINITY;
  /** No id is given twice: what was not there once it was looked for will never be. */
  const goneForGood = new Set<string>();
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
      const lacking = (there: ReadonlySet<string>): string[] =>
        [...new Set(cached.map((c) => c.dataset_id))].filter((id) => !there.has(id));
      const missing = lacking(await ids());
      if (missing.every((id) => goneForGood.has(id))) return missing;
      // It may be newer than what was read: what a node throws away on our word must be gone now.
      known = null;
      const gone = lacking(await ids());
      if (goneForGood.size > MOST_GONE) goneForGood.clear();
      for (const id of gone) goneForGood.add(id);
      return gone;
    },
  };
}
