/** The failover loop of a control plane without loops. */
import { silentLogger } from '@berth/kit/log';
import { failover } from '../../src/loops/failover.ts';
import type { Api } from './harness.ts';

/** Runs the loop once. */
export const runFailover = (api: Api): Promise<unknown> =>
  failover({
    failover: api.failover,
    instances: api.stores.instances,
    driver: api.driver,
    log: silentLogger(),
    monotonic: () => 0,
  })(new AbortController().signal);
