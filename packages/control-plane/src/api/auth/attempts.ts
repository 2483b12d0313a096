/** How often something was guessed wrong of late: so many tries in a window for each key (INTERFACES "Limits"). */
import { LRUCache } from 'lru-cache';
import { DomainError } from '../../domain/errors.ts';

const WINDOW_MS = 60_000;
/** Bounded: whoever tries many accounts pushes out old keys, not the memory. */
const MAX_KEYS = 20_000;

export type Attempts = {
  /** Counts a try before it is made, so that many at once do not all slip in. Throws too_many_attempts with the seconds to wait. */
  begin(key: string): void;
  /** This one try was right, or nobody looked at it. */
  takeBack(key: string): void;
  /** Whoever this key is about has proved who they are: begins anew. */
  forgive(key: string): void;
};

export function createAttempts(now: () => number, most = 10): Attempts {
  const tries = new LRUCache<string, number[]>({ max: MAX_KEYS });
  return {
    begin(key) {
      const at = now();
      const recent = (tries.get(key) ?? []).filter((t) => t > at - WINDOW_MS);
      const [oldest] = recent;
      if (oldest !== undefined && recent.length >= most) {
        const wait = Math.max(1, Math.ceil((oldest + WINDOW_MS - at) / 1000));
        throw new DomainError('too_many_attempts', `try again in ${wait} s`, [], wait);
      }
      tries.set(key, [...recent, at]);
    },
    takeBack(key) {
      const recent = tries.get(key);
      if (recent !== undefined) tries.set(key, recent.slice(0, -1));
    },
    forgive: (key) => void tries.delete(key),
  };
}

/** An IPv6 customer has a /64 and may use a new address for each try: the network is what counts. */
export function networkOf(address: string): string {
  if (!address.includes(':') || /^::ffff:\d+\.\d+\.\d+\.\d+$/i.test(address)) return address.replace(/^::ffff:/i, '');
  const [head = '', tail] = address.split('::');
  const groups = head === '' ? [] : head.split(':');
  if (tail !== undefined) {
    const rest = tail === '' ? [] : tail.split(':');
    while (groups.length + rest.length < 8) groups.push('0');
    groups.push(...rest);
  }
  return `${groups
    .slice(0, 4)
    .map((g) => g.toLowerCase().replace(/^0+(?=.)/, ''))
    .join(':')}::/64`;
}
