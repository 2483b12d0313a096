/** Half of the 100 seeds of `npm test` in each file, so that two threads share them. */
import { describe, expect, it } from 'vitest';
import { report } from './report.ts';
import { run } from './run.ts';

/** Seeds per test: a test that is stopped shows how far it came. */
const PIECE = 10;

export function runSeeds(first: number, last: number): void {
  describe('no seed breaks an invariant', () => {
    for (let from = first; from <= last; from += PIECE)
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
