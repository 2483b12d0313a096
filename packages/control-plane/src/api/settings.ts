/** Settings of the API. The `Deps` of each route pick only the settings that it uses. */
import type { Live } from '@berth/kit/live';
import type { OperatorNote, SettingInForce } from '@berth/wire/system';
import type { Role } from '@berth/wire/vocabulary';
import type { CleanSettings } from '../domain/deployments/clean-up.ts';
import type { TargetRules } from '../domain/notifications/notice-target.ts';
import type { PasswordCost } from './auth/passwords.ts';

export type LoopStatus = {
  name: string;
  description: string;
  lastOkAt: number | null;
  lastError: string | null;
};

export type ApiSettings = {
  /** Git commit of this build; null if unknown. */
  commit: string | null;
  /** Settings without secrets. */
  inForce: SettingInForce[];
  baseDomain: string;
  publicUrl: string;
  /** The current secret, then older ones. Empty: every agent is accepted. */
  agentSecrets: Live<readonly string[]>;
  /** If true, AGENT_SECRET works only for contract-only nodes that an admin admitted. */
  requireSecrets: boolean;
  /** Internal address, used in the command of a join token. */
  controlPlaneUrl: string;
  /** The current secret, then older ones. Empty: requests of gateways are refused. */
  gatewaySecrets: Live<readonly string[]>;
  /** The first secret signs tokens; all secrets verify them. */
  jwtSecrets: Live<readonly string[]>;
  /** E-mail addresses in lower case. These users are always admins. */
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
  /** Folder with the packages for joining machines; null if there is none. */
  packageDir: string | null;
  /** Folder with the built dashboard; null: no dashboard is served. */
  dashboardDir: string | null;
  /** Whether shared storage is configured. Without it no dataset can be scanned. */
  hasShare: boolean;
  allowedGitHosts: readonly string[];
  /** Rules for the targets of notifications. */
  notify: TargetRules;
  reservedPrefixes: readonly string[];
  /** Hosts of Berth's own addresses, which no project can have as a custom domain. */
  ownHosts: readonly string[];
  /** Warnings about settings, shown by /readyz. */
  notes: readonly OperatorNote[];
  passwordCost: PasswordCost;
  /** Version of Berth. */
  version: string;
  /**
   * Whether /metrics includes metrics of the process (memory, event loop). False if several servers
   * share a process.
   */
  processMetrics: boolean;
};
