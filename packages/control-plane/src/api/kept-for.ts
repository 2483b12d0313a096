/** Keeps the last result of a read for a while. */

/**
 * Returns a function that reads at most once in `ms`; concurrent callers share one read. A failed
 * read is kept too.
 */
export function keptFor<T>(ms: number, read: () => Promise<T>): () => Promise<T> {
  let kept: { until: number; result: Promise<T> } | null = null;
  return () => {
    if (kept === null || performance.now() >= kept.until)
      kept = { until: performance.now() + ms, result: read() };
    return kept.result;
  };
}
