/**
 * The clock of every deadline: it runs only while a control plane serves. An agent cannot claim, renew or report while no control plane
 * is there, so that time counts against nobody. The clock lives in the database; several control planes share it.
 *
 * running ─(beat within `gapMs` of the one before)─▶ running: the clock advances by the measured time
 * running ─(stopped, stalled, or without its database for longer)─▶ gap: the clock advances by `gapMs` at most, `since` begins anew
 *
 * It advances by the monotonic clock, so a jump of the machine's clock does not move it. A control plane that was stalled takes the
 * value that the others have reached meanwhile, and gives agents a grace period before it judges anything.
 */

/** `at`: the uptime clock in ms. `since`: its value when this control plane's present uninterrupted service began. */
export type Uptime = { at: number; since: number };

export type UptimeClock = {
  /** Reads the clock; asks the database first where the last answer is older than FRESH_MS. Throws what the database throws. */
  now(): Promise<Uptime>;
  /** As far as it is known here, without a word with the database: never ahead of `now`. */
  known(): Uptime;
};

export type UptimeStore = {
  /** Reads the clock of the service; the first one ever begins at `initial`. */
  read(initial: number): Promise<number>;
  /** Raises the clock to `at`, unless another control plane is further; returns where it stands. */
  raise(at: number): Promise<number>;
};

/** The longest time between two beats that counts as service without a gap. */
const LONGEST_GAP_MS = 5_000;
/** How old the last beat may be before a caller waits for another one. */
const FRESH_MS = 500;
/** After so many grace periods of uptime a deadline counts as missed, however often the service was interrupted. */
const MOST_GRACES = 3;

/**
 * Whether a deadline has passed. After a gap everybody first gets the grace period to be heard; interruptions that come again and again
 * extend a deadline by MOST_GRACES grace periods at most.
 */
export const isPast = (deadline: number, { at, since }: Uptime, graceMs: number): boolean =>
  at > deadline && (at - since >= graceMs || at - deadline >= MOST_GRACES * graceMs);

/** Reads the clock from the database. `monotonic`: ms, does not jump. `wall`: the machine's clock, ms since the epoch. */
export async function createUptimeClock(deps: {
  store: UptimeStore;
  monotonic: () => number;
  wall: () => number;
  /** The gap must be shorter than what is left of a lease that is renewed in time. */
  leaseMs: number;
}): Promise<UptimeClock> {
  const { store, monotonic, wall } = deps;
  const gapMs = Math.min(LONGEST_GAP_MS, deps.leaseMs / 4);
  let beatAt = monotonic();
  let wallAt = wall();
  let clock = await store.read(wallAt);
  let since = clock;
  let beating: Promise<void> | null = null;

  const advanced = (at: number): number => clock + Math.round(Math.min(at - beatAt, gapMs));

  async function beat(): Promise<void> {
    const [at, machine] = [monotonic(), wall()];
    const own = advanced(at);
    const clockJumped = Math.abs(machine - wallAt - (at - beatAt)) > gapMs;
    const stalled = at - beatAt > gapMs;
    const reached = await store.raise(own);
    [beatAt, wallAt, clock] = [at, machine, reached];
    if (stalled || clockJumped) since = reached;
  }

  return {
    known: () => ({ at: advanced(monotonic()), since }),
    async now() {
      const asked = monotonic();
      // One beat that begins after the question is enough, however long the database takes to answer.
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
