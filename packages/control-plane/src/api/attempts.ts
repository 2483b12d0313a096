/** How often a wrong password was given for one account from one address: TRIES a minute (INTERFACES "Limits"). */
import { LRUCache } from 'lru-cache';

const TRIES = 10;
const WINDOW_MS = 60_000;
/** Bounded: whoever tries many accounts pushes out old pairs, not the memory. */
const MAX_PAIRS = 20_000;

export type Attempts = {
  /** Counts a try before it is made, so that many at once do not all slip in. Seconds to wait when there were too many; 0: go on. */
  begin(account: string, address: string): number;
  /** The password was right, or nobody looked at it. */
  forgive(account: string, address: string): void;
};

export function createAttempts(now: () => number): Attempts {
  const tries = new LRUCache<string, number[]>({ max: MAX_PAIRS });
  const key = (account: string, address: string): string => `${address} ${account}`;
  return {
    begin(account, address) {
      const at = now();
      const recent = (tries.get(key(account, address)) ?? []).filter((t) => t > at - WINDOW_MS);
      const [oldest] = recent;
      if (oldest !== undefined && recent.length >= TRIES) return Math.max(1, Math.ceil((oldest + WINDOW_MS - at) / 1000));
      tries.set(key(account, address), [...recent, at]);
      return 0;
    },
    forgive: (account, address) => void tries.delete(key(account, address)),
  };
}
