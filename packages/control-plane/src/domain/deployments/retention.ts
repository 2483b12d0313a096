/** Retention of old records. docs/operating.md describes the full rule. */
export type Keep = {
  /** Number of newest deployments of each project that keep all their data. */
  deployments: number;
  /** A deployment keeps all its data for this many ms after its end. */
  ms: number;
  /** Limit for the total size of all logs in bytes. */
  logBytes: number;
};

/** Result of one pass. */
export type Removed = {
  /** Number of deployments that were reduced to their record. */
  thinned: number;
  /** Number of logs that were removed only because of KEEP_LOG_BYTES. */
  logs: number;
  /** Removed nodes, which had been silent for too long and had no data or work on them. */
  nodes: string[];
};

export type RetentionPass = AsyncGenerator<void, Removed, void>;

export type RetentionStore = {
  /**
   * Begins a pass that removes expired data. Each `next()` does one bounded step in one
   * transaction, so the caller sets the pace. The next pass continues an interrupted one. Passes
   * can run concurrently.
   */
  begin(keep: Keep, now: () => number): Promise<RetentionPass>;
  /**
   * Claims retention for this control plane until `until`. Returns false if a different control
   * plane has the claim.
   */
  claim(by: string, now: number, until: number): Promise<boolean>;
};
