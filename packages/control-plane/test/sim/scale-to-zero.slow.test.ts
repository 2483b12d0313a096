/** Projects that are scaled to 0 and up again while nodes, agents and control planes fail. */
import { expect, it } from 'vitest';
import { report } from './report.ts';
import { run } from './run.ts';

it('no seed breaks an invariant', { timeout: 120_000 }, async () => {
  const bad: string[] = [];
  for (let seed = 1; seed <= 8; seed++) {
    const result = await run({ seed, scales: 1, zeros: 0.25 });
    if (result.violations.length > 0) bad.push(report(result));
  }
  expect(bad).toEqual([]);
});
