/**
 * Sends a tick to each unsettled deployment, for dispatch and deadlines. Each commit wakes this
 * loop.
 */
import type { Driver } from '../flow/driver.ts';
import type { DeploymentStore } from '../domain/deployments/deployment-store.ts';
import type { Logger } from '@berth/kit/log';
import { each } from './each.ts';

export type Deps = {
  deployments: Pick<DeploymentStore, 'inProgress'>;
  driver: Pick<Driver, 'advance'>;
  log: Logger;
};

export const scheduler =
  ({ deployments, driver, log }: Deps) =>
  async (signal: AbortSignal): Promise<string | undefined> => {
    const waiting = await deployments.inProgress();
    // Advance deployments that are closer to live first.
    const order = { deploying: 0, built: 1, pending: 2 } as Record<string, number>;
    const next = waiting
      .filter(({ status }) => status !== 'building')
      .toSorted((a, b) => (order[a.status] ?? 3) - (order[b.status] ?? 3));
    return each(next, signal, {
      step: ({ id }) => driver.advance(id, { type: 'tick' }),
      failed: (err, { id }) =>
        log.error({ err, deployment_id: id }, 'could not advance a deployment; will retry'),
    });
  };
