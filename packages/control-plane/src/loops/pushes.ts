/** Advances deliveries that wait for a check of their branch. Each commit wakes this loop. */
import type { HookStore } from '../domain/git/hooks.ts';
import type { Driver } from '../flow/driver.ts';
import type { Logger } from '@berth/kit/log';
import { each } from './each.ts';

export type Deps = {
  hooks: Pick<HookStore, 'waiting'>;
  driver: Pick<Driver, 'checkPushes'>;
  log: Logger;
};

export const pushes =
  ({ hooks, driver, log }: Deps) =>
  async (signal: AbortSignal): Promise<string | undefined> =>
    each(await hooks.waiting(), signal, {
      step: (id) => driver.checkPushes(id),
      failed: (err, id) =>
        log.error({ err, project_id: id }, 'could not check the pushes of a project; will retry'),
    });
