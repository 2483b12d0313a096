/** Dependencies of the loops. */
import type { Logger } from '@berth/kit/log';
import type { BackupSettings } from '../domain/platform/backups.ts';
import type { CleanSettings } from '../domain/deployments/clean-up.ts';
import type { Changes } from '../domain/platform/changes.ts';
import type {
  AliasWatch,
  CertificateWatch,
  ConfigSource,
  ProxyProbe,
  Reach,
} from '../domain/routes/configuration.ts';
import type { ForgeAnswer, ForgeRequest, ForgeToken } from '../domain/git/forge-api.ts';
import type { Limits } from '../domain/deployments/facts.ts';
import type { SendNotice } from '../domain/notifications/notifications.ts';
import type { PolicySource } from '../domain/identity/policy.ts';
import type { Observation } from '../domain/notifications/problems.ts';
import type { Presence } from '../domain/identity/presence.ts';
import type { Keep } from '../domain/deployments/retention.ts';
import type { Scanner } from '../domain/data/scan.ts';
import type { Stores } from '../domain/platform/stores.ts';
import type { Telemetry } from '../domain/platform/telemetry.ts';
import type { UptimeClock } from '../domain/platform/uptime.ts';
import type { Driver } from '../flow/driver.ts';

export type DatasetSettings = {
  scanner: Scanner;
  /** DATASET_NFS_BASE_PATH */
  basePath: string;
  scanIntervalMs: number;
  scansAtOnce: number;
  /** Number of versions that each dataset keeps. */
  historyKeep: number;
};

/** Needs of the outbox of commit statuses beside the stores. */
export type StatusSettings = {
  send(request: ForgeRequest, signal: AbortSignal): Promise<ForgeAnswer>;
  /** Returns the git token of a project, or null. */
  tokenOf(projectId: string): Promise<(ForgeToken & { apiUrl: string | null }) | null>;
  publicUrl: string;
};

export type LoopDeps = {
  stores: Stores;
  driver: Driver;
  changes: Changes;
  source: ConfigSource;
  policy: PolicySource;
  limits: Limits;
  /**
   * Null without PROXY_PROBE_URLS: a configuration counts as live `settleMs` after the proxy
   * fetched it.
   */
  probe: ProxyProbe | null;
  /** Number of PROXY_PROBE_URLS. */
  entryPoints?: number;
  /** Null if no check of the proxy's connection to nodes is possible. */
  reach: Reach | null;
  /** Unset without PROXY_PROBE_URLS. */
  aliases?: AliasWatch;
  /** Unset without an https address in PROXY_PROBE_URLS. */
  certificates?: CertificateWatch;
  /** Host of PUBLIC_URL, where that is https. */
  ownHost?: string;
  settleMs: number;
  /** Null without shared storage. */
  datasets: DatasetSettings | null;
  presence: Presence;
  /** Null: no commit statuses are sent. */
  statuses: StatusSettings | null;
  /** Null: no notifications are sent. */
  sendNotice: SendNotice | null;
  /** Observes the disk of the data folder. Unset for a database in memory. */
  ownDisk?: () => Promise<Observation[]>;
  keep: Keep;
  clean: CleanSettings;
  /** Null without BACKUP_TO. */
  backups: BackupSettings | null;
  now: () => number;
  /** The clock of every deadline. */
  uptime: UptimeClock;
  /** Monotonic clock in ms. */
  monotonic: () => number;
  telemetry?: Telemetry;
  log: Logger;
};
