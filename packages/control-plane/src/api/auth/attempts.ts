/**
 * Rate limit of wrong guesses: a maximum number of tries for each key in a sliding window of one
 * minute (docs/interfaces.md "Limits").
 */
import { LRUCache } from 'lru-cache';
import { DomainError } from '../../domain/platform/errors.ts';
import { growingTo } from '../lru.ts';

const WINDOW_MS = 60_000;
/** Memory limit: new keys evict the oldest keys. */
const MAX_KEYS = 20_000;

export type Attempts = {
  /**
   * Counts a try before it is made, so that parallel tries count too. Throws too_many_attempts with
   * the seconds to wait.
   */
  begin(key: string): void;
  /**
   * Like `begin`, but returns the error, for a route that checks the proof before it refuses. Null
   * means that the try was counted.
   */
  over(key: string): DomainError | null;
  /** Removes one try that was correct or never checked. */
  takeBack(key: string): void;
  /** Removes all tries of the key after a correct one. */
  forgive(key: string): void;
};

export function createAttempts(now: () => number, most = 10): Attempts {
  const tries = new LRUCache<string, number[]>(growingTo(MAX_KEYS));
  const attempts: Attempts = {
    begin(key) {
      const problem = attempts.over(key);
      if (problem !== null) throw problem;
    },
    over(key) {
      const at = now();
      const recent = (tries.get(key) ?? []).filter((t) => t > at - WINDOW_MS);
      const [oldest] = recent;
      if (oldest !== undefined && recent.length >= most) {
        const wait = Math.max(1, Math.ceil((oldest + WINDOW_MS - at) / 1000));
        return new DomainError('too_many_attempts', `try again in ${wait} s`, [], wait);
      }
      tries.set(key, [...recent, at]);
      return null;
    },
    takeBack(key) {
      const recent = tries.get(key);
      if (recent !== undefined) tries.set(key, recent.slice(0, -1));
    },
    forgive: (key) => void tries.delete(key),
  };
  return attempts;
}

/**
 * Returns the network to count for an address: the IPv4 address, or the IPv6 /64, because one
 * customer has all addresses of a /64.
 */
export function networkOf(address: string): string {
  if (!address.includes(':') || /^::ffff:\d+\.\d+\.\d+\.\d+$/i.test(address))
    return address.replace(/^::ffff:/i, '');
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
