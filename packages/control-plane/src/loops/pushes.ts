/** Advances the deliveries that wait for a check of their branch. Each commit wakes this loop. */
import type { LoopDeps } from './deps.ts';

export const pushes =
  ({ stores, driver, log }: LoopDeps) =>
  async (signal: AbortSignal): Promise<void> => {
    for (const id of await stores.hooks.waiting()) {
      if (signal.aborted) return;
      try {
        await driver.checkPushes(id);
      } catch (error) {
        // A failure of one project must not hold up the others. The next run retries.
        log.error(
          { err: error, project_id: id },
          'could not check the pushes of a project; will retry',
        );
      }
    }
  };
