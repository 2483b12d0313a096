/** Repeats calls to the control plane while it is unreachable, and ends at the first refusal. */
import { backoff } from '@berth/kit/backoff';
import { ApiError, UnreachableError } from '@berth/wire/client';
import { pause } from '../stopped.ts';

/** No answer, a server error, too many requests, or a secret that is being rotated (401). */
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
 * Repeats the call with backoff until it succeeds. Rejects with the first lasting error, or with
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
