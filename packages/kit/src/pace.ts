/**
 * Work that nobody waits for, which leaves half of its core to others while it is told to be gentle. A low priority alone does not: what
 * wakes beside work that never pauses may stand in the other core's queue until the kernel's next tick (4 ms at 250 Hz).
 */

/** Shared by all threads that do the work: 1 while it is to be gentle. */
export type Pace = Int32Array<SharedArrayBuffer>;

const GENTLE = 1;
/** As long as somebody waits who woke beside it: short to him, long beside two switches of the thread. */
const SHORTEST_MS = 0.25;
/** Some steps take longer; who waited through one is not helped by a long rest behind it. */
const LONGEST_MS = 10;

export const createPace = (): Pace => new Int32Array(new SharedArrayBuffer(4));

export function setGentle(pace: Pace, gentle: boolean): void {
  Atomics.store(pace, 0, gentle ? GENTLE : 0);
  // Whoever rests goes on.
  if (!gentle) Atomics.notify(pace, 0);
}

export const isGentle = (pace: Pace): boolean => Atomics.load(pace, 0) === GENTLE;

/**
 * For one thread. Called between two steps it blocks that thread for as long as it used the processor since its last rest (waits for a
 * disk count as rest), or returns at once where nobody asked for that or there is nothing yet to rest from.
 */
export function createBreather(pace: Pace): () => void {
  /** Since when there is something to rest from: what was done before anybody asked is not. */
  let from: { at: number; processorMs: number } | null = null;
  const begin = (): { at: number; processorMs: number } => ({ at: performance.now(), processorMs: processorMs() });
  return () => {
    if (!isGentle(pace)) {
      from = null;
      return;
    }
    from ??= begin();
    // A thread is not longer at work than time passes, which costs much less to ask: this may stand in a loop.
    if (performance.now() - from.at < SHORTEST_MS) return;
    const worked = processorMs() - from.processorMs;
    if (worked < SHORTEST_MS) return;
    Atomics.wait(pace, 0, GENTLE, Math.min(worked, LONGEST_MS));
    from = begin();
  };
}

/**
 * Of this thread. Linux brings the time of a thread that runs up to date when the whole process is asked for, else at its tick only
 * (4 ms at 250 Hz): asked for alone it stands still, and what was to be a quarter of a millisecond lasts until the tick.
 */
function processorMs(): number {
  process.cpuUsage();
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
}
