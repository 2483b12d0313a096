/** Finishes what DELETE of a dataset began: versions, history and tree objects go, and what the scanner keeps. The files on the share stay. */
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
        // One that cannot be removed must not hold up the others; the next run sees it again.
        log.error({ err: error, ...fields }, 'a dataset could not be removed yet');
      }
    }
  };
