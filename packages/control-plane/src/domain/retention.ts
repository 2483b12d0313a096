/** How much of the past the database keeps. docs/operating.md, "What is kept, and how long", has the rule in full. */
export type Keep = {
  /** The newest deployments of each project that stay whole. */
  deployments: number;
  /** How long any deployment stays whole after it ended. */
  ms: number;
  /** Bytes that all logs together may take. */
  logBytes: number;
};

/** What one pass removed. */
export type Removed = {
  /** Deployments of which only the record is left. */
  thinned: number;
  /** Logs that were removed for KEEP_LOG_BYTES alone. */
  logs: number;
  /** Nodes that were silent for so long and had nothing on them. */
  nodes: string[];
};

export type RetentionPass = AsyncGenerator<void, Removed, void>;

export type RetentionStore = {
  /**
   * Begins a pass over everything that is kept too long. Each `next()` does one bounded piece of work in one transaction, so the caller
   * sets the pace. A pass that is left or killed loses nothing: the next one finds the rest. Passes may run side by side.
   */
  begin(keep: Keep, now: () => number): Promise<RetentionPass>;
  /** Whether this control plane, and no other, is to do it until `until`. */
  claim(by: string, now: number, until: number): Promise<boolean>;
};
