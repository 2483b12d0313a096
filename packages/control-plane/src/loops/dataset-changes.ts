/**
 * Finds running deployments with an older version of a dataset; the flow adds a line to their story
 * or redeploys them. The monitor does this for each new version. This loop repeats it after a
 * crash, or when another deployment had to end first.
 */
import { isBehind } from '../flow/data.ts';
import type { DatasetStore } from '../domain/data/dataset-stores.ts';
import type { DeploymentStore } from '../domain/deployments/deployment-store.ts';
import type { Driver } from '../flow/driver.ts';
import type { Logger } from '@berth/kit/log';
import { each } from './each.ts';

export type Deps = {
  datasets: Pick<DatasetStore, 'facts'>;
  deployments: Pick<DeploymentStore, 'mountedNow'>;
  driver: Pick<Driver, 'datasetChanged'>;
  log: Logger;
};

export const datasetChanges =
  ({ datasets, deployments, driver, log }: Deps) =>
  async (signal: AbortSignal): Promise<string | undefined> => {
    const newest = new Map((await datasets.facts()).map((d) => [d.id, d.version]));
    // Use one query for all running deployments. One for each dataset would cost a hundred times as
    // much.
    const behind = (await deployments.mountedNow())
      .flat()
      .filter((pin) => isBehind(pin, newest.get(pin.dataset_id) ?? null));
    return each(new Set(behind.map((pin) => pin.dataset_id)), signal, {
      step: (id) => driver.datasetChanged(id),
      failed: (err, id) =>
        log.error(
          { err, dataset_id: id },
          'could not notify deployments of a new dataset version; will retry',
        ),
    });
  };
