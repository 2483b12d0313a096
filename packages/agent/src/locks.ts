/** Locks by key, in memory: each key has one holder, and waiters are served in order. */
import { reasonOf } from './stopped.ts';

export type Locks = {
  /**
   * Waits for the lock and returns its release function. Rejects with the signal's reason, and
   * leaves the queue, if the signal aborts first.
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
