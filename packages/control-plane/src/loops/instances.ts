/**
 * Brings each running deployment to the number of instances that its project wants: it repeats a
 * scale that failed, and looks for a node for each waiting instance.
 */
import type { Logger } from '@berth/kit/log';
import { type InstanceRecord, isCountReached } from '../domain/deployments/instance.ts';
import type { InstanceStore } from '../domain/deployments/instance-store.ts';
import type { Driver } from '../flow/driver.ts';

export type Deps = {
  instances: Pick<InstanceStore, 'all' | 'scaled'>;
  driver: Pick<Driver, 'advance'>;
  log: Logger;
};

export const instances =
  ({ instances: store, driver, log }: Deps) =>
  async (signal: AbortSignal): Promise<void> => {
    const byDeployment = Map.groupBy(await store.all(), ({ deployment_id }) => deployment_id);
    const ids = new Set<string>();
    for (const [id, rows] of byDeployment) if (rows.some(isWaiting)) ids.add(id);
    for (const { id, count, is_held, ...first } of await store.scaled()) {
      const others = byDeployment.get(id) ?? [];
      if (!isCountReached(first, others, { count, isHeld: is_held })) ids.add(id);
    }
    for (const id of ids) {
      if (signal.aborted) return;
      await driver
        .advance(id, { type: 'scaled' })
        .catch((error: unknown) =>
          log.error({ err: error, deployment_id: id }, 'could not scale a deployment; will retry'),
        );
    }
  };

const isWaiting = ({ state }: InstanceRecord): boolean => state === 'waiting';
