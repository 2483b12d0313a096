/**
 * Records whether people use the API; background work slows down meanwhile. Agents and gateways are
 * not people.
 */
export type Presence = {
  /** Records a request of a person. */
  seen(): void;
  arePeopleHere(): boolean;
};

/**
 * Presence lasts this long after a request: longer than the interval between two requests of a page
 * or a program.
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
