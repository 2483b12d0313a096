/**
 * Finds what runs on an older version of a dataset, and has the flow tell it or deploy it again. The monitor asks for it as soon as
 * there is a version; here it is found again: after a crash in between, or when another deployment had to end first.
 */
import { isBehind } from '../flow/data.ts';
import type { LoopDeps } from './deps.ts';

export const datasetChanges =
  ({ stores, driver, log }: LoopDeps) =>
  async (signal: AbortSignal): Promise<void> => {
    const newest = new Map((await stores.datasets.facts()).map((d) => [d.id, d.version]));
    // One look at all that runs: one for each dataset would be a hundred times that.
    const behind = (await stores.deployments.mountedNow()).flat().filter((pin) => isBehind(pin, newest.get(pin.dataset_id) ?? null));
    for (const id of new Set(behind.map((pin) => pin.dataset_id))) {
      if (signal.aborted) return;
      try {
        await driver.datasetChanged(id);
      } catch (error) {
        // Found again in the next round.
        log.error({ err: error, dataset_id: id }, 'what runs on an older version could not be told');
      }
    }
  };
