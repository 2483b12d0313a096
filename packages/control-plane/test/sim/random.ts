/**
 * Seeded random numbers: the same seed gives the same run. (sfc32, seeded by splitmix32; public
 * domain, PractRand.)
 */
export type Random = {
  /** Returns a number in [0, 1). */
  next(): number;
  /** Returns an integer from `low` to `high`, both included. */
  int(low: number, high: number): number;
  chance(p: number): boolean;
  pick<T>(items: readonly T[]): T;
  maybe<T>(items: readonly T[]): T | undefined;
};

export function createRandom(seed: number): Random {
  let mixed = seed >>> 0;
  const mix = (): number => {
    mixed = (mixed + 0x9e3779b9) | 0;
    let t = mixed ^ (mixed >>> 16);
    t = Math.imul(t, 0x21f0aaad);
    t ^= t >>> 15;
    t = Math.imul(t, 0x735a2d97);
    return (t ^ (t >>> 15)) >>> 0;
  };
  let [a, b, c, d] = [mix(), mix(), mix(), 1];
  const next = (): number => {
    const t = (a + b + d) | 0;
    d = (d + 1) | 0;
    a = b ^ (b >>> 9);
    b = (c + (c << 3)) | 0;
    c = (c << 21) | (c >>> 11);
    c = (c + t) | 0;
    return (t >>> 0) / 2 ** 32;
  };
  const int = (low: number, high: number): number => low + Math.floor(next() * (high - low + 1));
  const maybe = <T>(items: readonly T[]): T | undefined =>
    items[int(0, Math.max(0, items.length - 1))];
  return {
    next,
    int,
    chance: (p) => next() < p,
    maybe,
    pick(items) {
      if (items.length === 0) throw new Error('nothing to pick from');
      return maybe(items) as (typeof items)[number];
    },
  };
}
