/** Repeats calls to the control plane while it is unreachable, until the first refusal. */
import { backoff } from '@berth/kit/backoff';
import { ApiError, UnreachableError } from '@berth/wire/client';
import { pause } from '../stopped.ts';

/**
 * Tells whether a retry can help: no answer, a server error, too many requests, or a 401 during a
 * rotation of the secret.
 */
export function isTransient(error: unknown): boolean {
  if (error instanceof UnreachableError) return true;
  return (
    error instanceof ApiError &&
    (error.status >= 500 || error.status === 429 || error.status === 408 || error.status === 401)
  );
}

export type RetryOptions = {
  signal: AbortSignal;
  minMs?: number;
  maxMs?: number;
  onFailure?: (error: unknown, waitMs: number) => void;
};

/**
 * Repeats the call with backoff until it succeeds. Rejects with the first permanent error, or with
 * the signal’s reason.
 */
export async function retryUntilAnswered<T>(
  call: () => Promise<T>,
  { signal, minMs = 250, maxMs = 10_000, onFailure }: RetryOptions,
): Promise<T> {
  for (let attempt = 0; ; attempt += 1) {
    signal.throwIfAborted();
    try {
      return await call();
    } catch (error) {
      if (!isTransient(error)) throw error;
      const wait = backoff(attempt, { min: minMs, max: maxMs });
      onFailure?.(error, wait);
      await pause(wait, signal);
    }
  }
}
