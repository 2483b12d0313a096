/**
 * Brings each running deployment to the number of instances that its project wants: it repeats a
 * scale that failed, and looks for a node for each waiting instance.
 */
import type { Logger } from '@berth/kit/log';
import { each } from './each.ts';
import { type InstanceRecord, isCountReached, isWeb } from '../domain/deployments/instance.ts';
import type { InstanceStore, ScaledDeployment } from '../domain/deployments/instance-store.ts';
import type { Driver } from '../flow/driver.ts';

export type Deps = {
  instances: Pick<InstanceStore, 'all' | 'scaled'>;
  driver: Pick<Driver, 'advance'>;
  log: Logger;
};

export const instances =
  ({ instances: store, driver, log }: Deps) =>
  async (signal: AbortSignal): Promise<string | undefined> => {
    const byDeployment = Map.groupBy(await store.all(), ({ deployment_id }) => deployment_id);
    const ids = new Set<string>();
    for (const [id, rows] of byDeployment) if (rows.some(isWaiting)) ids.add(id);
    for (const one of await store.scaled())
      if (!isScaled(one, byDeployment.get(one.id) ?? [])) ids.add(one.id);
    return each(ids, signal, {
      step: (id) => driver.advance(id, { type: 'scaled' }),
      failed: (err, id) =>
        log.error({ err, deployment_id: id }, 'could not scale a deployment; will retry'),
    });
  };

/** Returns whether each process of the deployment has as many instances as the project wants. */
function isScaled(
  { count, workers, is_held: isHeld, ...first }: ScaledDeployment,
  others: readonly InstanceRecord[],
): boolean {
  const isWebReached =
    count === null || isCountReached(first, others.filter(isWeb), { count, isHeld });
  return (
    isWebReached &&
    Object.entries(workers).every(([process, wanted]) => {
      const rows = others.filter((one) => one.process === process);
      // No worker is the first instance of its deployment.
      const none = { ...first, lost_since: 0 };
      return isCountReached(none, rows, { count: wanted, isHeld });
    })
  );
}

const isWaiting = ({ state }: InstanceRecord): boolean => state === 'waiting';
