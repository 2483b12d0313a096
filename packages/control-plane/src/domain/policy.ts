/** What the gateways decide by, as others see it: the API serves it, a loop keeps it fresh. Made in routing/. */
export type PolicySource = {
  /** Exactly the bytes that the ETag is of. Reads them first if nobody did. Throws policy_unknown while they cannot be read. */
  current(): Promise<{ bytes: string; etag: string }>;
  /** Resolves when the ETag is another than `not`, or after `ms`, or on abort. */
  changed(not: string, ms: number, signal: AbortSignal): Promise<void>;
  /** Reads it again if another control plane changed it. */
  look(): Promise<void>;
  close(): void;
};
