/**
 * Finds what runs on an older version of a dataset, and has the flow tell it or deploy it again. The monitor asks for it as soon as
 * there is a version; here it is found again: after a crash in between, or when another deployment had to end first.
 */
import type { LoopDeps } from './deps.ts';

export const datasetChanges =
  ({ stores, driver, log }: LoopDeps) =>
  async (signal: AbortSignal): Promise<void> => {
    for (const { id, version } of await stores.datasets.facts()) {
      if (signal.aborted) return;
      if (version === null) continue;
      try {
        await driver.datasetChanged(id);
      } catch (error) {
        // One project that cannot be decided about must not hold up the others.
        log.error({ err: error, dataset_id: id }, 'what runs on an older version could not be told');
      }
    }
  };
