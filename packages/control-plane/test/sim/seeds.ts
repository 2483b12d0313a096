/**
 * The seeds of `npm test`. They rotate: each day has other ones, so that 50 days of runs cover the
 * 1,000 seeds of `npm run sim`. The title of a failed test names its seeds.
 */
import { describe, expect, it } from 'vitest';
import { report } from './report.ts';
import { run } from './run.ts';

/** Seeds a day, of SEEDS in all. Each of two files runs a half, so that two threads share them. */
const A_DAY = 20;
const SEEDS = 1_000;
/** Seeds per test: a test that is stopped shows how far it came. */
const PIECE = 5;
const DAY_MS = 86_400_000;

export function runSeedsOfToday(half: 0 | 1): void {
  const today = (Math.floor(Date.now() / DAY_MS) * A_DAY) % SEEDS;
  const first = today + (half * A_DAY) / 2 + 1;
  describe('no seed of this day breaks an invariant', () => {
    for (let from = first; from < first + A_DAY / 2; from += PIECE)
      it(`seeds ${from} to ${from + PIECE - 1}`, { timeout: 120_000 }, async () => {
        const bad: string[] = [];
        for (let seed = from; seed < from + PIECE; seed++) {
          const result = await run({ seed });
          if (result.violations.length > 0) bad.push(report(result));
        }
        expect(bad).toEqual([]);
      });
  });
}
