/**
 * Counts the users of each key, so that a version, an image or a network is not removed while it is
 * in use, and no client uses more than its share.
 */

export type RefCounts = {
  /** Adds a user. The returned function removes the user; a second call of it does nothing. */
  add(key: string): () => void;
  has(key: string): boolean;
  count(key: string): number;
  /** Sum over all keys. */
  total(): number;
  keys(): Set<string>;
};

export function createRefCounts(): RefCounts {
  const counts = new Map<string, number>();
  let total = 0;
  function change(key: string, by: 1 | -1): void {
    total += by;
    const users = (counts.get(key) ?? 0) + by;
    if (users > 0) counts.set(key, users);
    else counts.delete(key);
  }
  return {
    has: (key) => counts.has(key),
    count: (key) => counts.get(key) ?? 0,
    total: () => total,
    keys: () => new Set(counts.keys()),
    add(key) {
      change(key, 1);
      let released = false;
      return () => {
        if (released) return;
        released = true;
        change(key, -1);
      };
    },
  };
}
