/** Returns the dependencies of a loop of the control plane, from the API of a test. */
import { silentLogger } from '@berth/kit/log';
import { createCacheIndex } from '../../src/domain/nodes/cache-index.ts';
import type { Api } from './harness.ts';

export const loopParts = (api: Api, now: () => number = Date.now) => ({
  ...api.stores,
  ...api,
  secrets: api.stores.secrets,
  cacheIndex: createCacheIndex(),
  failover: { overdue: () => new Set<string>() },
  registryAddr: () => 'registry:5000',
  now,
  log: silentLogger(),
});
