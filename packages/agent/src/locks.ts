/** Locks by key, in memory: one holder for each key, in the order of the requests. */
import { reasonOf } from './stopped.ts';

export type Locks = {
  /**
   * Resolves with the release. Rejects with the signal's reason if that comes first, and leaves the
   * queue.
   */
  acquire(key: string, signal: AbortSignal): Promise<() => void>;
};

export function createLocks(): Locks {
  const tails = new Map<string, Promise<void>>();
  return {
    async acquire(key, signal) {
      const before = tails.get(key) ?? Promise.resolve();
      let release: () => void = () => undefined;
      const held = new Promise<void>((resolve) => (release = resolve));
      const tail = before.then(() => held);
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
