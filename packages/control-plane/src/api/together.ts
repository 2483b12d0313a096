/**
 * Requests that may wait a moment are worked in together. Ten thousand agents register 333 times a second; one at a time each finds
 * the processor's caches cold, and is a wake-up of its own, which costs about as much as the work itself. One that comes alone is
 * handled at once, so that a small installation waits for nothing.
 */

/** How long one waits at most for others, and how close the one before must have been for it to wait at all. */
const EVERY_MS = 50;
/** At most so many without a look at what else has come: when ten thousand agents come back at once, nobody is kept waiting by them. */
const AT_ONCE = 32;

/** Returns what takes a piece of work: it runs now, or within `everyMs` together with others. In the order in which it came. */
export function createTogether(everyMs = EVERY_MS, atOnce = AT_ONCE): (work: () => void) => void {
  const waiting: (() => void)[] = [];
  let last = Number.NEGATIVE_INFINITY;

  const go = (): void => {
    for (const work of waiting.splice(0, atOnce)) work();
    if (waiting.length > 0) setImmediate(go);
  };

  return (work) => {
    const at = performance.now();
    const alone = waiting.length === 0 && at - last >= everyMs;
    last = at;
    if (alone) return work();
    if (waiting.push(work) === 1) setTimeout(go, everyMs);
  };
}
