/** Median and spread of a list of numbers. */
export type Summary = { min: number; p50: number; p99: number; max: number };

export function summary(figures: readonly number[]): Summary {
  const sorted = figures.toSorted((a, b) => a - b);
  const at = (q: number): number =>
    sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * q))] ?? Number.NaN;
  return { min: at(0), p50: at(0.5), p99: at(0.99), max: sorted.at(-1) ?? Number.NaN };
}
