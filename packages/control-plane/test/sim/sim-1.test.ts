/** The first half of a thousand seeded runs of a small platform in which everything goes wrong. More: `npm run sim -- --seeds N`. */
import { expect, it } from 'vitest';
import { run } from './run.ts';
import { runSeeds } from './thousand.ts';

runSeeds(1, 500);

it('the same seed is the same run', async () => {
  const [first, second] = [await run({ seed: 13 }), await run({ seed: 13 })];
  expect(first.history.length).toBeGreaterThan(50);
  expect(second.history.map((e) => [e.at, e.type])).toEqual(first.history.map((e) => [e.at, e.type]));
  expect(second.steps).toBe(first.steps);
});
