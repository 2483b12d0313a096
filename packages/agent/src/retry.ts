/** Calls to the control plane that must arrive: again and again while it is away, never again when it said no. */
import { backoff } from '@berth/kit/backoff';
import { ApiError, UnreachableError } from '@berth/wire/client';
import { pause } from './stopped.ts';

/** No answer, an answer that something is wrong over there, or a secret that is being changed. */
export function isPassing(error: unknown): boolean {
  if (error instanceof UnreachableError) return true;
  return error instanceof ApiError && (error.status >= 500 || error.status === 429 || error.status === 408 || error.status === 401);
}

export type RetryOptions = { signal: AbortSignal; minMs?: number; maxMs?: number; onFailure?: (error: unknown, waitMs: number) => void };

/** Until it works, an error that does not pass, or the signal (its reason is thrown). */
export async function untilAnswered<T>(
  call: () => Promise<T>,
  { signal, minMs = 250, maxMs = 10_000, onFailure }: RetryOptions,
): Promise<T> {
  for (let attempt = 0; ; attempt += 1) {
    signal.throwIfAborted();
    try {
      return await call();
    } catch (error) {
      if (!isPassing(error)) throw error;
      const wait = backoff(attempt, { min: minMs, max: maxMs });
      onFailure?.(error, wait);
      await pause(wait, signal);
    }
  }
}
