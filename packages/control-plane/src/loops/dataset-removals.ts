/**
 * Finishes deletions of datasets: removes versions, history, tree objects and the scan cache. Does
 * not touch the files on the share.
 */
import type { DatasetStore } from '../domain/data/dataset-stores.ts';
import type { Changes } from '../domain/platform/changes.ts';
import type { ScanSettings } from './settings.ts';
import type { Logger } from '@berth/kit/log';
import { each } from './each.ts';

export type Deps = {
  datasets: Pick<DatasetStore, 'listDeleting' | 'remove'>;
  changes: Pick<Changes, 'notify'>;
  /** Null without shared storage. */
  scans: ScanSettings | null;
  log: Logger;
};

export const datasetRemovals =
  ({ datasets, changes, scans, log }: Deps) =>
  async (signal: AbortSignal): Promise<string | undefined> =>
    each(await datasets.listDeleting(), signal, {
      async step({ id, name }) {
        await scans?.scanner.forget(id);
        await datasets.remove(id);
        changes.notify('datasets');
        log.info({ dataset_id: id, dataset: name }, 'dataset deleted');
      },
      failed: (err, { id, name }) =>
        log.error({ err, dataset_id: id, dataset: name }, 'could not remove a dataset; will retry'),
    });
