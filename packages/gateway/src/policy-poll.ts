/** Fetches the policy from the control plane with long polls. */
import { defined } from '@berth/kit/defined';
import type { Client } from '@berth/wire/client';
import { isPolicy, type PolicyFile } from './policy-file.ts';
import type { PolicyState } from './policy-state.ts';

/**
 * Time for which a request is held. It is short, so that a connection that died unnoticed cannot
 * delay a revocation beyond the allowed 5 s.
 */
const WAIT_SECONDS = 2;
const GRACE_MS = 2_000;
/** Time limit of a request that is not held, so that a large policy can arrive on a slow line. */
const PATIENT_MS = 10_000;
/** Minimum pause between two requests. */
const MIN_PAUSE_MS = 25;
const MAX_PAUSE_MS = 1_000;
/** Pause if the control plane answers immediately instead of holding the request. */
const NOT_HELD_MS = 1_000;

export type PolicyPollParts = {
  controlPlane: Client;
  file: PolicyFile;
  now: () => number;
  state: PolicyState;
  onDisk: (write: Promise<void>) => Promise<void>;
  signal: AbortSignal;
};
export type PolicyPoll = {
  /** Requests the policy once. Returns the pause in ms until the next request. */
  step(): Promise<number>;
  ageMs(): number | null;
  lastError(): string | null;
  setLastError(error: string | null): void;
};

/**
 * `storedAt`: time in ms at which the control plane last confirmed the stored policy; null if no
 * policy is stored.
 */
export function createPolicyPoll(parts: PolicyPollParts, storedAt: number | null): PolicyPoll {
  const { controlPlane, file, now, state, onDisk, signal } = parts;
  let etag: string | null = null;
  /**
   * Monotonic time in ms, because a jump of the wall clock must not make the policy look newer or
   * older.
   */
  let confirmedAt: number | null = null;
  let lastError: string | null = 'the control plane has not answered yet';

  /**
   * Returns the time in ms that a new policy took to process, or null if the policy has not
   * changed.
   */
  async function request(): Promise<number | null> {
    const mayHold = etag !== null && lastError === null;
    const result = await controlPlane.exchange('gatewayPolicy', {
      query: { wait: mayHold ? WAIT_SECONDS : 0 },
      ...defined({ headers: etag === null ? undefined : { 'if-none-match': etag } }),
      timeoutMs: mayHold ? WAIT_SECONDS * 1000 + GRACE_MS : PATIENT_MS,
      signal,
    });
    const receivedAt = performance.now();
    confirmedAt = receivedAt;
    if (result.answer === null) {
      await onDisk(file.confirm(now()));
      return null;
    }
    if (!isPolicy(result.answer))
      throw new Error('the answer of the control plane is not a policy');
    state.setPolicy(result.answer);
    etag = result.etag;
    state.publish();
    await onDisk(file.write(result.answer));
    return performance.now() - receivedAt;
  }

  return {
    async step() {
      const startedAt = performance.now();
      const tookMs = await request();
      // Pause in proportion to the processing time, so that frequent changes of a large policy do
      // not slow down /verify.
      if (tookMs !== null) return Math.min(Math.max(MIN_PAUSE_MS, 4 * tookMs), MAX_PAUSE_MS);
      return performance.now() - startedAt < NOT_HELD_MS ? NOT_HELD_MS : MIN_PAUSE_MS;
    },
    ageMs() {
      if (confirmedAt !== null) return performance.now() - confirmedAt;
      return storedAt === null ? null : Math.max(0, now() - storedAt);
    },
    lastError: () => lastError,
    setLastError(error) {
      lastError = error;
    },
  };
}
