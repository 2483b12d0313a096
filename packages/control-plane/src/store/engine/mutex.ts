/**
 * First-come, first-served lock for the one connection to an embedded engine. The lock of Kysely
 * wakes every waiter at each release, and all but one wait again: 10,000 waiters cause 50 million
 * wake-ups, which block the process.
 */
export type Mutex = {
  /** Resolves when the caller holds the lock. The caller must then call `release`. */
  acquire(): Promise<void>;
  release(): void;
};

export function createMutex(): Mutex {
  const waiting: (() => void)[] = [];
  let held = false;
  return {
    acquire() {
      if (held) return new Promise((resolve) => waiting.push(resolve));
      held = true;
      return Promise.resolve();
    },
    release() {
      const next = waiting.shift();
      // Passes the lock to the first waiter without releasing it, so a newcomer cannot overtake the
      // waiters.
      if (next === undefined) held = false;
      else next();
    },
  };
}
