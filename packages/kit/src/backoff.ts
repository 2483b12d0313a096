/** Milliseconds before try number `attempt` (from 0): exponential between `min` and `max`, with full jitter above the half. */
export function backoff(attempt: number, { min, max }: { min: number; max: number }, random: () => number = Math.random): number {
  const ceiling = Math.min(max, min * 2 ** Math.min(attempt, 30));
  return ceiling / 2 + (ceiling / 2) * random();
}
