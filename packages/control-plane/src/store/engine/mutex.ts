/**
 * First come, first served lock for the one connection to an embedded engine. Kysely's own lock
 * wakes every waiter at each release, and all but one wait again: 10,000 waiters cause 50 million
 * wake-ups, and nothing else runs meanwhile.
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
      // The lock passes to the first waiter without becoming free, so a newcomer cannot overtake
      // the waiters.
      if (next === undefined) held = false;
      else next();
    },
  };
}
