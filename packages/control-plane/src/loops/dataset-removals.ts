/**
 * Finishes deletions of datasets: removes versions, history, tree objects and the scan cache. The
 * files on the share stay.
 */
import type { LoopDeps } from './deps.ts';

export const datasetRemovals =
  ({ stores, changes, datasets, log }: LoopDeps) =>
  async (signal: AbortSignal): Promise<void> => {
    for (const dataset of await stores.datasets.listDeleting()) {
      if (signal.aborted) return;
      const fields = { dataset_id: dataset.id, dataset: dataset.name };
      try {
        await datasets?.scanner.forget(dataset.id);
        await stores.datasets.remove(dataset.id);
        changes.notify('datasets');
        log.info(fields, 'dataset deleted');
      } catch (error) {
        // A failure must not hold up the others. The next run retries.
        log.error({ err: error, ...fields }, 'could not remove a dataset; will retry');
      }
    }
  };
