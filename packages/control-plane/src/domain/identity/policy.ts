/**
 * Policy of the gateways. routing/ builds the policy, the API serves it, and a loop refreshes it.
 */
export type PolicySource = {
  /**
   * Returns the policy and the ETag of these bytes. Throws policy_unknown while the policy cannot
   * be read.
   */
  current(): Promise<{ bytes: string; etag: string }>;
  /** Resolves when the ETag differs from `not`, after `ms` milliseconds, or on abort. */
  changed(not: string, ms: number, signal: AbortSignal): Promise<void>;
  /** Reads the policy again if another control plane changed it. */
  refreshIfChanged(): Promise<void>;
  close(): void;
};
