/**
 * Batches work that can wait a moment. 10,000 agents send 333 registrations per second. Handled one
 * at a time, each registration finds the processor's caches cold and wakes the process, which costs
 * about as much as the registration itself. Work that arrives alone runs immediately, so a small
 * installation has no delay.
 */

/** Longest delay of a piece of work. It waits only if the previous one arrived within this time. */
const INTERVAL_MS = 50;
/**
 * Largest batch. Between two batches the process handles other events, so 10,000 agents that
 * reconnect at once do not block them.
 */
const MAX_BATCH = 32;

/**
 * Returns a function that runs work immediately, or, if the previous work arrived less than
 * `intervalMs` ago, in a batch. It keeps the order of arrival.
 */
export function createBatcher(
  intervalMs = INTERVAL_MS,
  maxBatch = MAX_BATCH,
): (work: () => void) => void {
  const waiting: (() => void)[] = [];
  let lastArrival = Number.NEGATIVE_INFINITY;

  const runBatch = (): void => {
    for (const work of waiting.splice(0, maxBatch)) work();
    if (waiting.length > 0) setImmediate(runBatch);
  };

  return (work) => {
    const arrival = performance.now();
    const isAlone = waiting.length === 0 && arrival - lastArrival >= intervalMs;
    lastArrival = arrival;
    if (isAlone) return work();
    if (waiting.push(work) === 1) setTimeout(runBatch, intervalMs);
  };
}
