/** Advances deliveries that wait for a check of their branch. Each commit wakes this loop. */
import type { HookStore } from '../domain/git/hooks.ts';
import type { Driver } from '../flow/driver.ts';
import type { Logger } from '@berth/kit/log';

export type Deps = {
  hooks: Pick<HookStore, 'waiting'>;
  driver: Pick<Driver, 'checkPushes'>;
  log: Logger;
};

export const pushes =
  ({ hooks, driver, log }: Deps) =>
  async (signal: AbortSignal): Promise<void> => {
    for (const id of await hooks.waiting()) {
      if (signal.aborted) return;
      try {
        await driver.checkPushes(id);
      } catch (error) {
        // Continue with the other projects. The next run retries.
        log.error(
          { err: error, project_id: id },
          'could not check the pushes of a project; will retry',
        );
      }
    }
  };
