/**
 * Types of the reverse proxy's configuration. routing/ builds the configuration, the API serves it,
 * and a loop checks whether it is live.
 */
import type { Judged } from './certificates.ts';

export type BuiltConfig = {
  /** Served JSON with sorted keys. */
  bytes: string;
  /**
   * First 16 hex digits of the SHA-256 of the configuration without the marker; also the path of
   * the marker.
   */
  hash: string;
  /** Targets of the routes in the configuration, by deployment id. */
  deployments: ReadonlyMap<string, RouteTarget>;
  /** Published custom domains, with the id of their project. */
  domains: ReadonlyMap<string, string>;
  /** Omitted projects and domains, with reasons. */
  problems: string[];
  /**
   * Routes that are omitted because a later route has the same address. `holder`: name of the
   * project of the later route.
   */
  collisions: { deployment_id: string; host_ip: string; host_port: number; holder: string }[];
};

/** The host of a project and the address on the node that serves it. */
export type RouteTarget = {
  project_id: string;
  host: string;
  host_ip: string;
  host_port: number;
  auth_required: boolean;
  /** The host answers with a page, so no node is reached. */
  is_page?: true;
};

export type ConfigSource = {
  /** Returns the current configuration. Throws routes_unknown. */
  current(): BuiltConfig;
  /** Resolves when the hash differs from `not`, after `ms` milliseconds, or on abort. */
  changed(not: string, ms: number, signal?: AbortSignal): Promise<void>;
  /** Records that the proxy fetched the configuration with this hash. */
  served(hash: string): void;
  /** Returns when a proxy first fetched the current configuration, or null. */
  servedAt(): number | null;
  /**
   * Returns the time in ms since a proxy last fetched any configuration, or since the start of this
   * process if no proxy has fetched one.
   */
  fetchAgeMs(): number;
  /** Returns the omitted projects and domains, with reasons. */
  problems(): string[];
  /** Reads the routes again. Rethrows errors of the store. */
  refresh(): Promise<void>;
  close(): void;
};

/**
 * A host that the proxy serves over https. `project_id`: null for Berth's own hosts. `custom`: true
 * for a custom domain.
 */
export type WatchedHost = { host: string; project_id: string | null; custom?: boolean };
export type HostCertificate = Judged & { checked_at: number };
/**
 * Watches certificates. `check` probes a bounded number of hosts that are due, and never throws.
 */
export type CertificateWatch = {
  check(hosts: readonly WatchedHost[], signal: AbortSignal): Promise<void>;
  /** Returns the certificate of the project's host under BASE_DOMAIN; null if not known yet. */
  ofProject(id: string): HostCertificate | null;
  /** Returns the certificate of a host; null if not known yet. */
  ofHost(host: string): HostCertificate | null;
  /**
   * Returns the hosts with a problem. Excludes custom domains that never had a good certificate,
   * because their owners might not have pointed them here yet.
   */
  problems(): { host: string; problem: string }[];
  /**
   * Returns the ids of projects whose host under BASE_DOMAIN has a certificate that is invalid or
   * expires soon.
   */
  projectsWithProblem(): string[];
  /** Returns all watched hosts with their last certificate; null: not known yet. */
  watched(): (WatchedHost & { last: HostCertificate | null })[];
  /** Returns the earliest expiry of a certificate; null if no certificate is known. */
  firstExpiry(): number | null;
};

/**
 * Watches header aliases. `kept`: returns whether a proxy forwards headers like `X!Forwarded!User`;
 * null if not known yet. `check` never throws.
 */
export type AliasWatch = {
  check(hash: string, signal: AbortSignal): Promise<void>;
  kept(): boolean | null;
};
/** Returns whether the reverse proxy serves the configuration with this hash. Never throws. */
export type ProxyProbe = (hash: string, signal: AbortSignal) => Promise<boolean>;

/** `path`: path that a visitor requests. */
export type ReachTarget = RouteTarget & { path: string };
export type ReachVerdict =
  | { kind: 'reached' }
  /** The check was not possible. */
  | { kind: 'unproven'; why: string }
  /** `proxy`: address of the proxy in PROXY_PROBE_URLS. `saw`: answer of the proxy. */
  | { kind: 'unreachable'; proxy: string; saw: string }
  /** The proxy itself did not respond. */
  | { kind: 'no_proxy' };
/**
 * Checks through each proxy whether it reaches the node. Never throws, and ends within a bounded
 * time.
 */
export type Reach = (target: ReachTarget, signal: AbortSignal) => Promise<ReachVerdict>;
