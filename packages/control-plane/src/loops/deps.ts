/** What every loop is given. */
import type { Logger } from '@berth/kit/log';
import type { Changes } from '../domain/changes.ts';
import type { ConfigSource, ProxyProbe } from '../domain/configuration.ts';
import type { Limits } from '../domain/facts.ts';
import type { PolicySource } from '../domain/policy.ts';
import type { Stores } from '../domain/stores.ts';
import type { Driver } from '../flow/drive.ts';

export type LoopDeps = {
  stores: Stores;
  driver: Driver;
  changes: Changes;
  source: ConfigSource;
  policy: PolicySource;
  limits: Limits;
  /** null where PROXY_PROBE_URLS is not set: fetched plus `settleMs` counts as live. */
  probe: ProxyProbe | null;
  settleMs: number;
  now: () => number;
  log: Logger;
};
