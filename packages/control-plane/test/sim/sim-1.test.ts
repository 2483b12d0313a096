/** The first half of a thousand seeded runs of a small platform in which everything goes wrong. More: `npm run sim -- --seeds N`. */
import { expect, it } from 'vitest';
import { run } from './run.ts';
import { runSeeds } from './thousand.ts';

runSeeds(1, 500);

// 48 and 55 have rows that are equal in all but their ids, which were not the seed's once.
// 8, 19 and 27: two machines with one hostname; in 8 and 19 the second one gets the name.
it.each([13, 48, 55, 8, 19, 27])('the same seed is the same run (%i)', async (seed) => {
  const [first, second] = [await run({ seed }), await run({ seed })];
  expect(first.history.length).toBeGreaterThan(50);
  expect(second.history).toEqual(first.history);
  expect(second.steps).toBe(first.steps);
});
