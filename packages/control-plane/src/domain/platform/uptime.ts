/**
 * Uptime clock for all deadlines. It runs only while a control plane serves: otherwise agents
 * cannot claim, renew or report, so that time must not count. The clock is stored in the database,
 * and all control planes share it.
 *
 *   running ── beat within `gapMs` of the previous beat ──▶ running: advances by the measured time
 *   running ── later beat (stop, stall, no database) ──▶ gap: advances by at most `gapMs`, and
 *                                                        `since` restarts
 *
 * The clock of a control plane never runs faster than real time. The clocks of two control planes
 * differ by at most the time between two beats (about 1 s, never more than `gapMs`) plus one round
 * trip to the database. A lease that one control plane grants and another ends is shorter by at
 * most this difference.
 *
 * The clock advances by the monotonic clock, so a jump of the machine's clock does not change it.
 * After a stall, a control plane takes over the value of the others and gives agents a grace period
 * before any deadline counts as missed.
 */

/**
 * `at`: value of the uptime clock in ms. `since`: its value when the current uninterrupted service
 * of this control plane began.
 */
export type Uptime = { at: number; since: number };

export type UptimeClock = {
  /**
   * Reads the clock; queries the database if the last value is older than FRESH_MS. Rethrows errors
   * of the database.
   */
  now(): Promise<Uptime>;
  /** Returns the clock without a query; never later than `now`. */
  estimate(): Uptime;
};

export type UptimeStore = {
  /** Reads the stored clock; the first call ever sets it to `initial`. */
  read(initial: number): Promise<number>;
  /** Raises the clock to `at` unless it is already later, and returns its value. */
  raise(at: number): Promise<number>;
};

/** Longest time between two beats that counts as uninterrupted service. */
const LONGEST_GAP_MS = 5_000;
/** A caller waits for a new beat if the last one is older than this. */
const FRESH_MS = 500;
/**
 * A deadline counts as missed at the latest after this many grace periods of uptime, however often
 * service was interrupted.
 */
const MOST_GRACES = 3;

/**
 * Returns whether a deadline has passed. After a gap agents first get a grace period to report.
 * Repeated interruptions extend a deadline by at most MOST_GRACES grace periods.
 */
export const isPast = (deadline: number, { at, since }: Uptime, graceMs: number): boolean =>
  at > deadline && (at - since >= graceMs || at - deadline >= MOST_GRACES * graceMs);

/**
 * Creates the clock from its stored value. `monotonic`: ms. `wall`: the machine's clock, ms since
 * the epoch.
 */
export async function createUptimeClock(deps: {
  store: UptimeStore;
  monotonic: () => number;
  wall: () => number;
  /**
   * Duration of a lease. A gap must be shorter than the time that a lease renewed on time has left.
   */
  leaseMs: number;
}): Promise<UptimeClock> {
  const { store, monotonic, wall } = deps;
  const gapMs = Math.min(LONGEST_GAP_MS, deps.leaseMs / 4);
  let clock = await store.read(wall());
  // Read after the database answers: another control plane might have written the value meanwhile,
  // and the clock must not run ahead.
  let beatAt = monotonic();
  let wallAt = wall();
  let since = clock;
  let beating: Promise<void> | null = null;

  /** Returns the clock with fractions of a millisecond, so that no beat rounds up. */
  const exact = (at: number): number => clock + Math.min(at - beatAt, gapMs);
  const advanced = (at: number): number => Math.floor(exact(at));

  async function beat(): Promise<void> {
    const [at, machine] = [monotonic(), wall()];
    const own = exact(at);
    const clockJumped = Math.abs(machine - wallAt - (at - beatAt)) > gapMs;
    const stalled = at - beatAt > gapMs;
    const reached = await store.raise(Math.floor(own));
    // Subtract the duration of the query: another control plane might have raised the value to
    // `reached` only now, and `clock` is the value at the time `at`.
    const others = reached - (monotonic() - at);
    [beatAt, wallAt, clock] = [at, machine, Math.max(own, others)];
    if (stalled || clockJumped) since = advanced(at);
  }

  return {
    estimate: () => ({ at: advanced(monotonic()), since }),
    async now() {
      const asked = monotonic();
      // Wait for two beats at most: the one in progress might have started before the call, but the
      // next one starts after it.
      for (let beats = 0; beats < 2 && asked - beatAt > FRESH_MS; beats++) {
        beating ??= beat().finally(() => {
          beating = null;
        });
        await beating;
      }
      return { at: advanced(monotonic()), since };
    },
  };
}
