/**
 * Sends a tick to each unsettled deployment, for dispatch and deadlines. Each commit wakes this
 * loop.
 */
import type { Driver } from '../flow/driver.ts';
import type { DeploymentStore } from '../domain/deployments/deployment-store.ts';
import type { Logger } from '@berth/kit/log';

export type Deps = {
  deployments: Pick<DeploymentStore, 'inProgress'>;
  driver: Pick<Driver, 'advance'>;
  log: Logger;
};

export const scheduler =
  ({ deployments, driver, log }: Deps) =>
  async (signal: AbortSignal): Promise<void> => {
    const waiting = await deployments.inProgress();
    // Advance deployments that are closer to live first.
    const order = { deploying: 0, built: 1, pending: 2 } as Record<string, number>;
    for (const d of waiting.toSorted((a, b) => (order[a.status] ?? 3) - (order[b.status] ?? 3))) {
      if (signal.aborted) return;
      if (d.status === 'building') continue;
      await tick(driver, d.id, log);
    }
  };

/** Sends a tick to one deployment. A failure does not affect the others. */
async function tick(driver: Deps['driver'], id: string, log: Logger): Promise<void> {
  try {
    await driver.advance(id, { type: 'tick' });
  } catch (error) {
    log.error({ err: error, deployment_id: id }, 'could not advance a deployment');
  }
}
