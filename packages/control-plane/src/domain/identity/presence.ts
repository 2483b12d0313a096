/**
 * Records whether people use the API, so that background work can slow down meanwhile. Requests of
 * agents and gateways do not count.
 */
export type Presence = {
  /** Records a request of a person. */
  seen(): void;
  arePeopleHere(): boolean;
};

/**
 * A request counts as presence for this long. Longer than the usual interval between two requests
 * of a page or program.
 */
const STAY_MS = 2_000;

export function createPresence(now: () => number = () => performance.now()): Presence {
  let seenAt = Number.NEGATIVE_INFINITY;
  return {
    seen() {
      seenAt = now();
    },
    arePeopleHere: () => now() - seenAt < STAY_MS,
  };
}
