/** What the API is given by app.ts. It reaches the rest of the control plane through these doors and no others. */
import type { Logger } from '@berth/kit/log';
import type { Role } from '@berth/wire/vocabulary';
import type { Changes } from '../domain/changes.ts';
import type { Limits } from '../domain/facts.ts';
import type { PolicySource } from '../domain/policy.ts';
import type { LookAtFolder } from '../domain/folder-look.ts';
import type { Presence } from '../domain/presence.ts';
import type { Stores } from '../domain/stores.ts';
import type { Telemetry } from '../domain/telemetry.ts';
import type { UptimeClock } from '../domain/uptime.ts';
import type { Driver } from '../flow/drive.ts';
import type { AliasWatch, ConfigSource } from '../domain/configuration.ts';
import type { PasswordCost } from './auth/passwords.ts';

export type LoopStatus = { name: string; description: string; lastOkAt: number | null; lastError: string | null };

export type ApiSettings = {
  /** That this build was made of; null: nobody said. */
  commit: string | null;
  baseDomain: string;
  publicUrl: string;
  /** The current one first, then earlier ones. Empty: every agent is accepted. */
  agentSecrets: readonly string[];
  /** AGENT_SECRET alone registers only contract-only nodes that were admitted. */
  requireSecrets: boolean;
  /** Internal address, for the command of a join token. */
  controlPlaneUrl: string;
  /** As agentSecrets. Empty: no gateway is let in. */
  gatewaySecrets: readonly string[];
  /** As agentSecrets: tokens are signed with the first and read with any. */
  jwtSecrets: readonly string[];
  /** Lower case: these are admins, whatever else is said of them. */
  adminEmails: readonly string[];
  /** Of people who signed in at the gateway and are unknown here; null: they are refused. */
  defaultRole: Role | null;
  /** Where the gateway's keys are read; null: there is none. */
  authServiceUrl: string | null;
  /** Whose X-Forwarded-For says where a request comes from. */
  trustedProxies: readonly string[];
  registry: { addr: string; user: string; password: string };
  /** Whether there is shared storage: without it nothing can be scanned. */
  hasShare: boolean;
  allowedGitHosts: readonly string[];
  reservedPrefixes: readonly string[];
  /** What an operator should know although it works; /readyz shows it. */
  notes: readonly string[];
  passwordCost: PasswordCost;
  /** Of Berth. */
  version: string;
  /** Metrics of the process itself (memory, event loop); off where many servers share a process. */
  processMetrics: boolean;
};

export type ApiDeps = {
  stores: Stores;
  driver: Driver;
  changes: Changes;
  source: ConfigSource;
  policy: PolicySource;
  loops: () => readonly LoopStatus[];
  /** Whether another control plane signs with a secret that is not read here; null: none does. */
  secretProblem: () => string | null;
  limits: Limits;
  settings: ApiSettings;
  lookAtFolder: LookAtFolder;
  presence: Presence;
  /** Left out where PROXY_PROBE_URLS is not set. */
  aliases?: AliasWatch;
  now: () => number;
  uptime: UptimeClock;
  telemetry: Telemetry;
  log: Logger;
};
