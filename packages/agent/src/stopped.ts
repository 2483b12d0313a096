/**
 * Why work was stopped from outside. It is the reason of the work's abort signal.
 *
 * cancelled   the control plane cancelled the task: clean up, then report `cancelled`
 * lost        another attempt has the task, or the task has ended: clean up, report nothing
 * shutdown    this process ends: clean up, report nothing; the control plane offers the task again
 */
export class Stopped extends Error {
  override name = 'Stopped';
  readonly why: 'cancelled' | 'lost' | 'shutdown';
  constructor(why: 'cancelled' | 'lost' | 'shutdown') {
    super(`stopped: ${why}`);
    this.why = why;
  }
}

/** Returns the signal's abort reason as an error. */
export const reasonOf = (signal: AbortSignal): Error =>
  signal.reason instanceof Error ? signal.reason : new Error(String(signal.reason));

/** Resolves after `ms`. Rejects with the signal's reason if the signal aborts first. */
export function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal.aborted) return reject(reasonOf(signal));
    const onAbort = (): void => {
      clearTimeout(timer);
      reject(reasonOf(signal));
    };
    const timer = setTimeout(() => {
      signal.removeEventListener('abort', onAbort);
      resolve();
    }, ms);
    signal.addEventListener('abort', onAbort, { once: true });
  });
}
