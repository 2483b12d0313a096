/** Checks seeded runs in which projects are scaled to 0 and up again while machines fail. */
import { expect, it } from 'vitest';
import { report } from './report.ts';
import { run } from './run.ts';

export function checkScaleToZero(seeds: readonly number[]): void {
  it(`none of the seeds ${seeds.join(', ')} breaks an invariant`, {
    timeout: 120_000,
  }, async () => {
    const bad: string[] = [];
    for (const seed of seeds) {
      const result = await run({ seed, scales: 1, zeros: 0.25 });
      if (result.violations.length > 0) bad.push(report(result));
    }
    expect(bad).toEqual([]);
  });
}
