/**
 * Counts the users of each key, so that a version, an image or a network is not removed while
 * something uses it.
 */

export type RefCounts = {
  /** Returns the release. A second call of the release does nothing. */
  add(key: string): () => void;
  has(key: string): boolean;
  keys(): Set<string>;
};

export function createRefCounts(): RefCounts {
  const counts = new Map<string, number>();
  return {
    has: (key) => counts.has(key),
    keys: () => new Set(counts.keys()),
    add(key) {
      counts.set(key, (counts.get(key) ?? 0) + 1);
      let released = false;
      return () => {
        if (released) return;
        released = true;
        const left = (counts.get(key) ?? 1) - 1;
        if (left > 0) counts.set(key, left);
        else counts.delete(key);
      };
    },
  };
}
