/** Names of events in deliveries of hooks, also those that no forge sends. */
import { expect, test } from 'vitest';
import { eventOf } from '../../src/api/hooks/payload.ts';

test.each([
  ['push', 'push'],
  ['Pull_Request', 'merge request'],
  ['fork', 'fork'],
  // Words that each object of JavaScript has.
  ['constructor', 'constructor'],
  ['__proto__', '__proto__'],
])('x-github-event: %s', (name, event) => {
  expect(eventOf('github', { 'x-github-event': name })).toBe(event);
});
