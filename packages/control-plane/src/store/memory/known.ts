/**
 * What was found by a look at the database and holds until something is committed that touches it, by key. A look that was
 * under way meanwhile is not kept: it may have seen what was before.
 */
export type Known<T> = {
  get(key: string): T | undefined;
  /** Call before looking; what it gives keeps what was found. */
  look(key: string): (found: T) => void;
  /** Call after the commit. */
  end(key: string): void;
};

export function createKnown<T>(): Known<T> {
  const known = new Map<string, T>();
  /** The newest look at each key that is not kept yet. */
  const looks = new Map<string, object>();
  return {
    get: (key) => known.get(key),
    look(key) {
      const mine = {};
      looks.set(key, mine);
      return (found) => {
        if (looks.get(key) !== mine) return;
        looks.delete(key);
        known.set(key, found);
      };
    },
    end(key) {
      known.delete(key);
      looks.delete(key);
    },
  };
}
