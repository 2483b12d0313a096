/**
 * A process that hangs in the kernel (a share that does not answer) cannot be killed. The agent
 * stops waiting for it.
 */
import { reasonOf } from './stopped.ts';

export class AbandonedError extends Error {
  override name = 'AbandonedError';
}

/**
 * Waits for `work`, at most `limitMs`, and at most `graceMs` after the signal was aborted. After
 * that it rejects with AbandonedError, or with the signal's reason, and `work` goes on alone.
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
  // Abandoned work can still fail; its error has no reader.
  work.catch(() => undefined);
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
    signal.removeEventListener('abort', onAbort);
  }
}
