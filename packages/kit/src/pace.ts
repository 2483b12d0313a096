/**
 * Throttles background threads to half of a core while the pace is gentle. A low priority alone is
 * not enough: a thread that wakes up beside a thread without pauses can wait in the run queue until
 * the kernel's next tick (4 ms at 250 Hz).
 */

/** Flag in memory that all worker threads share: 1 while the pace is gentle. */
export type Pace = Int32Array<SharedArrayBuffer>;

const GENTLE = 1;
/** Shortest rest. Other threads wait at most this long; two thread switches cost much less. */
const MIN_REST_MS = 0.25;
/**
 * Longest rest, for steps that take longer. A longer rest after such a step would not help other
 * threads.
 */
const MAX_REST_MS = 10;

export const createPace = (): Pace => new Int32Array(new SharedArrayBuffer(4));

export function setGentle(pace: Pace, gentle: boolean): void {
  Atomics.store(pace, 0, gentle ? GENTLE : 0);
  // Wake resting threads.
  if (!gentle) Atomics.notify(pace, 0);
}

export const isGentle = (pace: Pace): boolean => Atomics.load(pace, 0) === GENTLE;

/**
 * Creates the throttle of one thread. The thread calls it between two steps. While the pace is
 * gentle, the call blocks the thread for as long as the thread used the processor since its last
 * rest; waiting for a disk counts as rest. Otherwise it returns immediately.
 */
export function createBreather(pace: Pace): () => void {
  /** Start of the current work period; null while the pace is not gentle. */
  let from: { at: number; processorMs: number } | null = null;
  const begin = (): { at: number; processorMs: number } => ({
    at: performance.now(),
    processorMs: processorMs(),
  });
  return () => {
    if (!isGentle(pace)) {
      from = null;
      return;
    }
    from ??= begin();
    // Check the elapsed time first: it is an upper limit of the processor time and much cheaper to
    // read.
    if (performance.now() - from.at < MIN_REST_MS) return;
    const worked = processorMs() - from.processorMs;
    if (worked < MIN_REST_MS) return;
    Atomics.wait(pace, 0, GENTLE, Math.min(worked, MAX_REST_MS));
    from = begin();
  };
}

/**
 * Returns the processor time of this thread in ms. Reading the time of the whole process first
 * makes Linux update the time of the thread. Without that, the value changes only at the kernel's
 * tick (4 ms at 250 Hz), which is too coarse for rests of 0.25 ms.
 */
function processorMs(): number {
  process.cpuUsage();
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
}
