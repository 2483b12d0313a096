import { setTimeout as sleep } from 'node:timers/promises';

export interface WaitOptions {
  /** How long to wait, in ms (default 15,000). */
  readonly deadlineMs?: number;
  /** Pause between two checks, in ms (default 50). */
  readonly intervalMs?: number;
  readonly signal?: AbortSignal;
}

/** The condition did not become true in time. The message names it and the last error. */
export class WaitTimeout extends Error {
  override readonly name = 'WaitTimeout';
}

/** Thrown by a condition to end the wait at once, because it can never become true. */
export class GiveUp extends Error {
  override readonly name = 'GiveUp';
}

/**
 * Checks `condition` until it returns a value other than undefined, null or false, and returns that
 * value. A condition that throws counts as "not yet", and the message keeps its error. GiveUp ends
 * the wait.
 * @throws WaitTimeout after the deadline, GiveUp from the condition, or the signal's reason
 */
export async function waitFor<T>(
  name: string,
  condition: () => T | Promise<T>,
  options: WaitOptions = {},
): Promise<Exclude<T, undefined | null | false>> {
  const deadlineMs = options.deadlineMs ?? 15_000;
  const started = performance.now();
  let last: unknown;
  for (;;) {
    options.signal?.throwIfAborted();
    const remainingMs = started + deadlineMs - performance.now();
    try {
      const value = await within(Promise.resolve(condition()), Math.max(remainingMs, 1));
      if (value !== undefined && value !== null && value !== false) {
        return value as Exclude<T, undefined | null | false>;
      }
      last = undefined;
    } catch (error) {
      if (error instanceof GiveUp) throw new GiveUp(`${name}: ${error.message}`, { cause: error });
      // An earlier error says more than the fact that the last check was cut short.
      if (!(error instanceof CutShort) || last === undefined) last = error;
    }
    if (performance.now() - started >= deadlineMs) {
      const why = last === undefined ? '' : `; last error: ${messageWithCause(last)}`;
      throw new WaitTimeout(`timed out after ${deadlineMs} ms: ${name}${why}`, { cause: last });
    }
    await sleep(
      options.intervalMs ?? 50,
      undefined,
      options.signal ? { signal: options.signal } : {},
    );
  }
}

class CutShort extends Error {
  override readonly name = 'CutShort';
}

/**
 * Rejects when `work` takes longer than `ms`, so that one hung check cannot outlast the deadline.
 */
async function within<T>(work: Promise<T>, ms: number): Promise<T> {
  const { promise, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => reject(new CutShort(`no answer within ${ms} ms`)), ms);
  try {
    return await Promise.race([work, promise]);
  } finally {
    clearTimeout(timer);
  }
}

export function messageWithCause(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  // fetch hides the reason (ECONNREFUSED) in its cause.
  return error.cause instanceof Error ? `${error.message}: ${error.cause.message}` : error.message;
}
