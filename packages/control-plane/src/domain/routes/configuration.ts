/**
 * Types of the reverse proxy's configuration. routing/ builds it, the API serves it, and a loop
 * checks whether it is live.
 */
import type { Judged } from './certificates.ts';

export type BuiltConfig = {
  /** The served JSON with sorted keys. */
  bytes: string;
  /**
   * First 16 hex digits of the SHA-256 of the configuration without the marker; also the path of
   * the marker.
   */
  hash: string;
  /** Targets of the routes in it, by deployment id. */
  deployments: ReadonlyMap<string, RouteTarget>;
  /** Published custom domains, with the id of their project. */
  domains: ReadonlyMap<string, string>;
  /** Omitted projects and domains with the reason. */
  problems: string[];
  /**
   * Routes that are omitted because a later one leads to the same address. `holder`: its project,
   * for people.
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
};

export type ConfigSource = {
  /** Returns the current configuration. Throws routes_unknown. */
  current(): BuiltConfig;
  /** Resolves when the hash differs from `not`, after `ms`, or on abort. */
  changed(not: string, ms: number, signal?: AbortSignal): Promise<void>;
  /** Records that the proxy fetched the configuration with this hash. */
  served(hash: string): void;
  /** Returns when a proxy first fetched the current configuration, or null. */
  servedAt(): number | null;
  /**
   * Ms since a proxy last fetched any configuration; since the start of this process if none did.
   */
  fetchAgeMs(): number;
  /** Returns the omitted projects with the reason. */
  problems(): string[];
  /** Reads the routes again. Throws what the store throws. */
  refresh(): Promise<void>;
  close(): void;
};

/**
 * A host that the proxy serves over https. `project_id`: null for Berth's own. `custom`: a custom
 * domain.
 */
export type WatchedHost = { host: string; project_id: string | null; custom?: boolean };
export type HostCertificate = Judged & { checked_at: number };
/** `check` asks for some of the hosts, those that are due. It never throws. */
export type CertificateWatch = {
  check(hosts: readonly WatchedHost[], signal: AbortSignal): Promise<void>;
  /** The certificate of the project's host under BASE_DOMAIN; null if it is not known yet. */
  ofProject(id: string): HostCertificate | null;
  /** Null if it is not known yet. */
  ofHost(host: string): HostCertificate | null;
  /**
   * Without custom domains that never had a good certificate: their owners might not have pointed
   * them here yet.
   */
  problems(): { host: string; problem: string }[];
  /**
   * Ids of the projects whose host under BASE_DOMAIN has an invalid certificate, or one that
   * expires soon.
   */
  projectsWithProblem(): string[];
  /** Returns all hosts with the last answer; null: not known yet. */
  watched(): (WatchedHost & { last: HostCertificate | null })[];
  /** Earliest end of a certificate; null if none is known. */
  firstExpiry(): number | null;
};

/**
 * `kept`: whether a proxy forwards headers like `X!Forwarded!User`; null if not known yet. `check`
 * never throws.
 */
export type AliasWatch = {
  check(hash: string, signal: AbortSignal): Promise<void>;
  kept(): boolean | null;
};
/** Returns whether the reverse proxy serves the configuration with this hash. Never throws. */
export type ProxyProbe = (hash: string, signal: AbortSignal) => Promise<boolean>;

/** `path`: the path that a visitor requests. */
export type ReachTarget = RouteTarget & { path: string };
export type ReachVerdict =
  | { kind: 'reached' }
  /** The check was not possible. */
  | { kind: 'unproven'; why: string }
  /** `proxy`: its address in PROXY_PROBE_URLS. `saw`: its answer. */
  | { kind: 'unreachable'; proxy: string; saw: string }
  /** The proxy itself did not respond. */
  | { kind: 'no_proxy' };
/**
 * Checks through each proxy whether it reaches the node. Never throws, and ends within a bounded
 * time.
 */
export type Reach = (target: ReachTarget, signal: AbortSignal) => Promise<ReachVerdict>;
