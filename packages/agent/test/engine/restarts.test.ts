/** Restarts of the last ten minutes, counted from the engine's counter. */
import { expect, it } from 'vitest';
import { createRestarts } from '../../src/engine/restarts.ts';

const MINUTE = 60_000;

it('counts the restarts of the last ten minutes', () => {
  let at = 0;
  const restarts = createRestarts(() => at);
  const see = (count: number): number => {
    restarts.seen([{ id: 'a', restarts: count }]);
    return restarts.of({ id: 'a' });
  };
  restarts.seen([]);
  expect(see(0)).toBe(0);
  at = MINUTE;
  expect(see(2)).toBe(2);
  at = 5 * MINUTE;
  expect(see(3)).toBe(3);
  at = 11.5 * MINUTE;
  expect(see(3)).toBe(1);
  at = 16 * MINUTE;
  expect(see(3)).toBe(0);
  expect(restarts.of({ id: 'other' })).toBe(0);
});

it('does not count what happened before the agent started, and begins again after a start', () => {
  let at = 0;
  const restarts = createRestarts(() => at);
  restarts.seen([{ id: 'a', restarts: 7 }]);
  expect(restarts.of({ id: 'a' })).toBe(0);
  at = MINUTE;
  restarts.seen([{ id: 'a', restarts: 9 }]);
  expect(restarts.of({ id: 'a' })).toBe(2);
  // A person or the agent started it: the engine's counter is 0 again.
  restarts.seen([{ id: 'a', restarts: 0 }]);
  expect(restarts.of({ id: 'a' })).toBe(0);
});

it('counts a container that appeared after the first list from its start', () => {
  const restarts = createRestarts(() => 0);
  restarts.seen([]);
  restarts.seen([{ id: 'b', restarts: 3 }]);
  expect(restarts.of({ id: 'b' })).toBe(3);
});
