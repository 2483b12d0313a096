/** What every loop is given. */
import type { Logger } from '@berth/kit/log';
import type { Changes } from '../domain/changes.ts';
import type { AliasWatch, ConfigSource, ProxyProbe, Reach } from '../domain/configuration.ts';
import type { Limits } from '../domain/facts.ts';
import type { PolicySource } from '../domain/policy.ts';
import type { Presence } from '../domain/presence.ts';
import type { Keep } from '../domain/retention.ts';
import type { Scanner } from '../domain/scan.ts';
import type { Stores } from '../domain/stores.ts';
import type { Telemetry } from '../domain/telemetry.ts';
import type { UptimeClock } from '../domain/uptime.ts';
import type { Driver } from '../flow/drive.ts';

export type DatasetSettings = {
  scanner: Scanner;
  /** DATASET_NFS_BASE_PATH */
  basePath: string;
  scanIntervalMs: number;
  scansAtOnce: number;
  /** Versions of a dataset that are kept. */
  historyKeep: number;
};

export type LoopDeps = {
  stores: Stores;
  driver: Driver;
  changes: Changes;
  source: ConfigSource;
  policy: PolicySource;
  limits: Limits;
  /** null where PROXY_PROBE_URLS is not set: fetched plus `settleMs` counts as live. */
  probe: ProxyProbe | null;
  /** null: nothing asks whether the proxy reaches a node. */
  reach: Reach | null;
  /** Left out where PROXY_PROBE_URLS is not set. */
  aliases?: AliasWatch;
  settleMs: number;
  /** null where there is no shared storage: nothing is scanned. */
  datasets: DatasetSettings | null;
  presence: Presence;
  keep: Keep;
  now: () => number;
  /** The clock of every deadline. */
  uptime: UptimeClock;
  /** Ms; does not jump when the machine's clock does. */
  monotonic: () => number;
  telemetry?: Telemetry;
  log: Logger;
};
