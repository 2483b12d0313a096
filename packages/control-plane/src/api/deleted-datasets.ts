/**
 * Finds cached datasets that were deleted. Keeps the ids of all datasets in memory, because 10,000
 * nodes list their cached datasets every 30 s. Reads the ids again after a change, and every minute
 * because a notification from another control plane can be lost.
 */
import type { Changes } from '../domain/platform/changes.ts';
import type { DatasetStore } from '../domain/data/dataset-stores.ts';

const MAX_AGE_MS = 60_000;
/** Memory limit: a node can send any ids. */
const MAX_DELETED = 10_000;

export type Deps = {
  datasets: Pick<DatasetStore, 'ids'>;
  changes: Pick<Changes, 'on'>;
};
export type DeletedDatasets = ReturnType<typeof createDeletedDatasets>;

export function createDeletedDatasets({ datasets, changes }: Deps) {
  let existing: Promise<ReadonlySet<string>> | null = null;
  let readAt = Number.NEGATIVE_INFINITY;
  /** Ids are never reused, so an id that was missing once stays missing. */
  const deleted = new Set<string>();
  changes.on('datasets', () => void (existing = null));

  function existingIds(): Promise<ReadonlySet<string>> {
    if (existing === null || performance.now() - readAt > MAX_AGE_MS) {
      readAt = performance.now();
      const reading = datasets.ids().then((all) => new Set(all));
      existing = reading;
      // If the read fails, the next call repeats it.
      reading.catch(() => void (existing === reading && (existing = null)));
    }
    return existing;
  }

  return {
    /** Returns the ids in `cached` whose dataset no longer exists. */
    async among(cached: readonly { dataset_id: string }[]): Promise<string[]> {
      if (cached.length === 0) return [];
      const missingFrom = (ids: ReadonlySet<string>): string[] =>
        [...new Set(cached.map((c) => c.dataset_id))].filter((id) => !ids.has(id));
      const missing = missingFrom(await existingIds());
      if (missing.every((id) => deleted.has(id))) return missing;
      // Read again: the dataset might be newer than the last read, and the node deletes its copy
      // because of this answer.
      existing = null;
      const confirmed = missingFrom(await existingIds());
      if (deleted.size > MAX_DELETED) deleted.clear();
      for (const id of confirmed) deleted.add(id);
      return confirmed;
    },
  };
}
