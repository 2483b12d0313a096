/** Whether people use the API just now: what nobody waits for then leaves them time. Agents and gateways are not people. */
export type Presence = {
  /** Somebody asks. */
  seen(): void;
  arePeopleHere(): boolean;
};

/** From one request to the next of somebody who looks at a page, or of a program that asks for them. */
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
