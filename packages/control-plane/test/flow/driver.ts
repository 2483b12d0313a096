/** The driver with fixed settings, for tests of decisions on real stores. */
import { createCacheIndex } from '../../src/domain/nodes/cache-index.ts';
import { createChanges } from '../../src/domain/platform/changes.ts';
import { DEFAULT_LIMITS } from '../../src/domain/deployments/facts.ts';
import type { AllStores } from '../../src/store/open.ts';
import { createDriver, type Driver } from '../../src/flow/driver.ts';
import { steadyUptime } from '../steady-uptime.ts';

export function driverOn(
  stores: AllStores,
  now: () => number,
  pause: (attempt: number) => Promise<void> = async () => {},
): Driver {
  let ids = 0;
  return createDriver({
    cacheIndex: createCacheIndex(),
    stores,
    changes: createChanges(),
    limits: DEFAULT_LIMITS,
    platform: { registryAddr: 'registry:5000', authServiceUrl: null, reservedPrefixes: [] },
    now,
    uptime: steadyUptime(now),
    pause,
    newId: () => `id-${++ids}`,
  });
}
