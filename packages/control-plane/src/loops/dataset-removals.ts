/**
 * Finishes deletions of datasets: removes versions, history, tree objects and the scan cache. Does
 * not touch the files on the share.
 */
import type { DatasetStore } from '../domain/data/dataset-stores.ts';
import type { Changes } from '../domain/platform/changes.ts';
import type { ScanSettings } from './settings.ts';
import type { Logger } from '@berth/kit/log';

export type Deps = {
  datasets: Pick<DatasetStore, 'listDeleting' | 'remove'>;
  changes: Pick<Changes, 'notify'>;
  /** Null without shared storage. */
  scans: ScanSettings | null;
  log: Logger;
};

export const datasetRemovals =
  ({ datasets, changes, scans, log }: Deps) =>
  async (signal: AbortSignal): Promise<void> => {
    for (const dataset of await datasets.listDeleting()) {
      if (signal.aborted) return;
      const fields = { dataset_id: dataset.id, dataset: dataset.name };
      try {
        await scans?.scanner.forget(dataset.id);
        await datasets.remove(dataset.id);
        changes.notify('datasets');
        log.info(fields, 'dataset deleted');
      } catch (error) {
        // Continue with the other datasets. The next run retries.
        log.error({ err: error, ...fields }, 'could not remove a dataset; will retry');
      }
    }
  };
