/** The reverse proxy's configuration as others see it: the API serves it, a loop asks whether it is live. Made in routing/. */
export type BuiltConfig = {
  /** What is served, sorted keys. */
  bytes: string;
  /** The marker's path: the first 16 hex digits of SHA-256 over the configuration without the marker. */
  hash: string;
  /** Deployments whose route stands in it, and where it leads. */
  deployments: ReadonlyMap<string, { host_ip: string; host_port: number }>;
  /** Projects that were left out, and why. */
  problems: string[];
};

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
export type ProxyProbe = (hash: string, signal: AbortSignal) => Promise<boolean>;
