/**
 * Results of database queries, by key, each valid until a commit changes its data.
 *
 * Entry: the callback of `startQuery`, after the query. Exit: `invalidate`, after a commit that touches the key.
 * Invariant: a result is present only if no commit touched its key since its query began. The result of a query that overlaps such a
 * commit is dropped, because the query may have read the old data.
 */
export type QueryResults<T> = {
  get(key: string): T | undefined;
  /** Call it before the query. The returned callback stores the result. */
  startQuery(key: string): (result: T) => void;
  /** Call it after the commit. */
  invalidate(key: string): void;
};

export function createQueryResults<T>(): QueryResults<T> {
  const results = new Map<string, T>();
  /** The newest unfinished query of each key. */
  const queries = new Map<string, object>();
  return {
    get: (key) => results.get(key),
    startQuery(key) {
      const mine = {};
      queries.set(key, mine);
      return (result) => {
        if (queries.get(key) !== mine) return;
        queries.delete(key);
        results.set(key, result);
      };
    },
    invalidate(key) {
      results.delete(key);
      queries.delete(key);
    },
  };
}
