/** A program that hangs in the kernel (a share that does not answer) cannot be ended, and must not take us with it. */
import { reasonOf } from './stopped.ts';

export class AbandonedError extends Error {
  override name = 'AbandonedError';
}

/**
 * What `work` gives; but it is waited for no longer than `mostMs`, and no longer than `graceMs` after the signal was aborted.
 * After that the rejection is the signal's reason, or AbandonedError, and `work` is left behind.
 */
export async function orAbandon<T>(work: Promise<T>, signal: AbortSignal, mostMs: number, graceMs: number): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  let onAbort: () => void = () => undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new AbandonedError(`not done after ${Math.round(mostMs / 1000)} s`)), mostMs);
    onAbort = () => {
      clearTimeout(timer);
      timer = setTimeout(() => reject(reasonOf(signal)), graceMs);
    };
    if (signal.aborted) onAbort();
    else signal.addEventListener('abort', onAbort, { once: true });
  });
  // Who is left behind may still fail; nobody listens any more.
  work.catch(() => undefined);
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
    signal.removeEventListener('abort', onAbort);
  }
}
