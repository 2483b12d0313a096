/** The reverse proxy's configuration as others see it: the API serves it, a loop asks whether it is live. Made in routing/. */
export type BuiltConfig = {
  /** What is served, sorted keys. */
  bytes: string;
  /** The marker's path: the first 16 hex digits of SHA-256 over the configuration without the marker. */
  hash: string;
  /** Deployments whose route stands in it, and where it leads. */
  deployments: ReadonlyMap<string, RouteTarget>;
  /** Projects that were left out, and why. */
  problems: string[];
};

/** Where a project's requests go: its host, and the address on the node. */
export type RouteTarget = { project_id: string; host: string; host_ip: string; host_port: number; auth_required: boolean };

export type ConfigSource = {
  /** Throws routes_unknown. */
  current(): BuiltConfig;
  /** Resolves when the hash is another than `not`, or after `ms`, or on abort. */
  changed(not: string, ms: number, signal?: AbortSignal): Promise<void>;
  /** The proxy was given the configuration with this hash. */
  served(hash: string): void;
  /** When a proxy was first given the present configuration; null: not yet. */
  servedAt(): number | null;
  /** Projects left out of it, and why. */
  problems(): string[];
  /** Reads the routes again. Throws what the store throws. */
  refresh(): Promise<void>;
  close(): void;
};

/** Whether the reverse proxy was seen, from outside, to serve the configuration with this hash. Never throws. */
/** `kept`: whether a proxy hands on headers like `X!Forwarded!User`; null: not known yet. `look` never throws. */
export type AliasWatch = { look(hash: string, signal: AbortSignal): Promise<void>; kept(): boolean | null };
export type ProxyProbe = (hash: string, signal: AbortSignal) => Promise<boolean>;

/** `path`: as a visitor requests it. */
export type ReachTarget = RouteTarget & { path: string };
export type ReachVerdict =
  | { kind: 'reached' }
  /** Nothing speaks against it, and nothing could prove it. */
  | { kind: 'unproven'; why: string }
  /** `proxy`: its address in PROXY_PROBE_URLS. */
  | { kind: 'unreachable'; proxy: string; saw: string }
  /** The proxy itself could not be asked. */
  | { kind: 'no_proxy' };
/** Whether the proxies reach the node, asked through each of them. Never throws, and ends within a bounded time. */
export type Reach = (target: ReachTarget, signal: AbortSignal) => Promise<ReachVerdict>;
