/** The policy of the gateways. routing/ builds it, the API serves it, and a loop refreshes it. */
export type PolicySource = {
  /**
   * Returns the policy with the ETag of exactly these bytes. Throws policy_unknown while it cannot
   * be read.
   */
  current(): Promise<{ bytes: string; etag: string }>;
  /** Resolves when the ETag differs from `not`, after `ms`, or on abort. */
  changed(not: string, ms: number, signal: AbortSignal): Promise<void>;
  /** Reads it again if another control plane changed it. */
  refreshIfChanged(): Promise<void>;
  close(): void;
};
