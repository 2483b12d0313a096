/**
 * Dependencies that app.ts passes to the API. The API reaches the rest of the control plane only
 * through them.
 */
import type { Live } from '@berth/kit/live';
import type { Logger } from '@berth/kit/log';
import type { Tracing } from '@berth/kit/tracing';
import type { Role } from '@berth/wire/vocabulary';
import type { CacheIndex } from '../domain/nodes/cache-index.ts';
import type { CleanSettings } from '../domain/deployments/clean-up.ts';
import type { Changes } from '../domain/platform/changes.ts';
import type { CheckDns } from '../domain/routes/dns.ts';
import type { Limits } from '../domain/deployments/facts.ts';
import type { SendNotice } from '../domain/notifications/notifications.ts';
import type { TargetRules } from '../domain/notifications/notice-target.ts';
import type { PolicySource } from '../domain/identity/policy.ts';
import type { CheckFolder } from '../domain/data/folder-check.ts';
import type { Presence } from '../domain/identity/presence.ts';
import type { Stores } from '../domain/platform/stores.ts';
import type { Telemetry } from '../domain/platform/telemetry.ts';
import type { UptimeClock } from '../domain/platform/uptime.ts';
import type { Vault } from '../domain/secrets/vault.ts';
import type { Driver } from '../flow/driver.ts';
import type { AliasWatch, CertificateWatch, ConfigSource } from '../domain/routes/configuration.ts';
import type { ReaderLimits } from './log-readers.ts';
import type { PasswordCost } from './auth/passwords.ts';
import type { SettingInForce } from '@berth/wire/system';
import type { SecretUse } from './auth/secret-use.ts';

export type LoopStatus = {
  name: string;
  description: string;
  lastOkAt: number | null;
  lastError: string | null;
};

export type ApiSettings = {
  /** Git commit of this build; null if it is not known. */
  commit: string | null;
  /** Without secrets. */
  inForce: SettingInForce[];
  baseDomain: string;
  publicUrl: string;
  /** The current one first, then earlier ones. Empty: every agent is accepted. */
  agentSecrets: Live<readonly string[]>;
  /** If true, AGENT_SECRET works only for contract-only nodes that an admin admitted. */
  requireSecrets: boolean;
  /** Internal address, used in the command of a join token. */
  controlPlaneUrl: string;
  /** The current one first, then earlier ones. Empty: requests of gateways are refused. */
  gatewaySecrets: Live<readonly string[]>;
  /** The first one signs tokens; all of them verify tokens. */
  jwtSecrets: Live<readonly string[]>;
  /** In lower case. These users are always admins. */
  adminEmails: readonly string[];
  /** Role of people who sign in at the gateway and have no account here; null: they are refused. */
  defaultRole: Role | null;
  /** Address of the gateway, which serves its public keys; null without a gateway. */
  authServiceUrl: string | null;
  /** Proxies whose X-Forwarded-For is trusted. */
  trustedProxies: readonly string[];
  maxConnections: number;
  registry: Live<{ addr: string; user: string; password: string }>;
  clean: CleanSettings;
  /** Folder with the packages for machines that join; null: none. */
  packageDir: string | null;
  /** Folder with the built dashboard; null: none is served. */
  dashboardDir: string | null;
  /** Whether shared storage is configured. Without it no dataset can be scanned. */
  hasShare: boolean;
  allowedGitHosts: readonly string[];
  /** Which targets notifications may have. */
  notify: TargetRules;
  reservedPrefixes: readonly string[];
  /** Hosts of Berth's own addresses, which no project may have as a custom domain. */
  ownHosts: readonly string[];
  /** Warnings about settings, shown by /readyz. */
  notes: readonly string[];
  passwordCost: PasswordCost;
  /** Version of Berth. */
  version: string;
  /**
   * Whether /metrics includes metrics of the process (memory, event loop). Off where several
   * servers share a process.
   */
  processMetrics: boolean;
};

export type ApiDeps = {
  stores: Stores;
  driver: Driver;
  changes: Changes;
  source: ConfigSource;
  policy: PolicySource;
  loops: () => readonly LoopStatus[];
  /**
   * Returns a message if another control plane signs with a JWT secret that this one does not have,
   * else null.
   */
  secretProblem: () => string | null;
  vault: Vault;
  secretUse: SecretUse;
  sendNotice: SendNotice;
  limits: Limits;
  /** Replaces limits of the readers of runtime logs. */
  readerLimits?: Partial<ReaderLimits>;
  /** Shared with the driver. */
  cacheIndex: CacheIndex;
  settings: ApiSettings;
  checkFolder: CheckFolder;
  presence: Presence;
  /** Absent if PROXY_PROBE_URLS is not set. */
  aliases?: AliasWatch;
  /** Absent without an https address in PROXY_PROBE_URLS. */
  certificates?: CertificateWatch;
  checkDns: CheckDns;
  /** BACKUP_INTERVAL; null without BACKUP_TO. */
  backupIntervalMs: number | null;
  /** DATASET_SCAN_INTERVAL. */
  scanIntervalMs: number;
  /** Folder of the SQLite file or STATE_DIR; null with a database in memory. */
  dataFolder: string | null;
  now: () => number;
  uptime: UptimeClock;
  telemetry: Telemetry;
  /** Null: traces are off. */
  tracing: Tracing | null;
  log: Logger;
};
