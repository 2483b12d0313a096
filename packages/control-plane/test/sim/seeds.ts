/**
 * The seeds of `npm test`. They rotate: each day has other ones, so that 50 days of runs cover the
 * 1,000 seeds of `npm run sim`. The title of a failed test names its seeds.
 */
import { describe, expect, it } from 'vitest';
import { report } from './report.ts';
import { run, type RunOptions } from './run.ts';

/** Seeds a day, of SEEDS in all. Each of two files runs a half, so that two threads share them. */
const A_DAY = 20;
const SEEDS = 1_000;
/** Acts of the seeds of one test: the last ones add jobs, and people who take `web` away. */
const ACTS: readonly Acts[] = [{}, {}, {}, { jobs: 1 }, { withoutWeb: 1 }];
/** Seeds per test: a test that is stopped shows how far it came. */
const PIECE = ACTS.length;
const DAY_MS = 86_400_000;

type Acts = Pick<RunOptions, 'jobs' | 'withoutWeb'>;
const optionOf = ({ jobs, withoutWeb }: Acts): string => {
  if (jobs !== undefined) return ' --jobs';
  return withoutWeb === undefined ? '' : ' --without-web';
};

export function runSeedsOfToday(half: 0 | 1): void {
  const today = (Math.floor(Date.now() / DAY_MS) * A_DAY) % SEEDS;
  const first = today + (half * A_DAY) / 2 + 1;
  describe('no seed of this day breaks an invariant', () => {
    for (let from = first; from < first + A_DAY / 2; from += PIECE)
      it(`seeds ${from} to ${from + PIECE - 1}`, { timeout: 120_000 }, async () => {
        const bad: string[] = [];
        for (const [i, acts] of ACTS.entries()) {
          const result = await run({ seed: from + i, ...acts });
          if (result.violations.length > 0) bad.push(report(result, optionOf(acts)));
        }
        expect(bad).toEqual([]);
      });
  });
}
