/**
 * Returns the pause in ms before attempt number `attempt` (from 0): exponential between `min` and
 * `max`; the upper half is random.
 */
export function backoff(
  attempt: number,
  { min, max }: { min: number; max: number },
  random: () => number = Math.random,
): number {
  const ceiling = Math.min(max, min * 2 ** Math.min(attempt, 30));
  return ceiling / 2 + (ceiling / 2) * random();
}
