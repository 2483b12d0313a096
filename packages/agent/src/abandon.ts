/**
 * Stops waiting for a process that hangs in the kernel, for example on a share that does not
 * answer, because it cannot be killed.
 */
import { reasonOf } from './stopped.ts';

export class AbandonedError extends Error {
  override name = 'AbandonedError';
}

/**
 * Waits for `work` at most `limitMs`, and at most `graceMs` after the signal aborts. Then rejects
 * with AbandonedError or the signal's reason, while `work` continues in the background.
 */
export async function orAbandon<T>(
  work: Promise<T>,
  signal: AbortSignal,
  limitMs: number,
  graceMs: number,
): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  let onAbort: () => void = () => undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(
      () => reject(new AbandonedError(`no result after ${Math.round(limitMs / 1000)} s`)),
      limitMs,
    );
    onAbort = () => {
      clearTimeout(timer);
      timer = setTimeout(() => reject(reasonOf(signal)), graceMs);
    };
    if (signal.aborted) onAbort();
    else signal.addEventListener('abort', onAbort, { once: true });
  });
  // Abandoned work can still fail: handle its rejection here.
  work.catch(() => undefined);
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
    signal.removeEventListener('abort', onAbort);
  }
}
