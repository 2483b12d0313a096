import { reasonOf } from './stopped.ts';

/** One at a time for each key, in the order of asking. */
export type Locks = { hold(key: string, signal: AbortSignal): Promise<() => void> };

export function createLocks(): Locks {
  const tails = new Map<string, Promise<void>>();
  return {
    /** Resolves with the release; rejects with the signal's reason when that comes first (the place in the queue is given up). */
    async hold(key, signal) {
      const before = tails.get(key) ?? Promise.resolve();
      let release: () => void = () => undefined;
      const mine = new Promise<void>((resolve) => (release = resolve));
      const tail = before.then(() => mine);
      tails.set(key, tail);
      void tail.then(() => {
        if (tails.get(key) === tail) tails.delete(key);
      });
      let onAbort: () => void = () => undefined;
      const aborted = new Promise<never>((_, reject) => {
        onAbort = () => reject(reasonOf(signal));
        if (signal.aborted) onAbort();
        else signal.addEventListener('abort', onAbort, { once: true });
      });
      try {
        await Promise.race([before, aborted]);
      } catch (error) {
        release();
        throw error;
      } finally {
        signal.removeEventListener('abort', onAbort);
      }
      return release;
    },
  };
}
