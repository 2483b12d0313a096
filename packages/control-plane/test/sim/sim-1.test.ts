/** The first half of 100 seeded runs of a small platform with random faults. More: `npm run sim -- --seeds N`. */
import { expect, it } from 'vitest';
import { run } from './run.ts';
import { runSeeds } from './seeds.ts';

runSeeds(1, 50);

// Seeds 48 and 55 have rows that differ only in their ids, which the seed did not always decide.
// Seeds 8, 19 and 27 have two machines with one hostname; in 8 and 19 the second one gets the name.
it.each([13, 48, 55, 8, 19, 27])('the same seed is the same run (%i)', async (seed) => {
  const [first, second] = [await run({ seed }), await run({ seed })];
  expect(first.history.length).toBeGreaterThan(50);
  expect(second.history).toEqual(first.history);
  expect(second.steps).toBe(first.steps);
});
