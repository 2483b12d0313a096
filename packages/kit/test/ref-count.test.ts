import { expect, test } from 'vitest';
import { createRefCounts } from '../src/ref-count.ts';

test('a key is in use until its last user releases it, and a second release changes nothing', () => {
  const users = createRefCounts();
  const first = users.add('a');
  const second = users.add('a');
  users.add('b');
  expect([users.count('a'), users.count('c'), users.total()]).toEqual([2, 0, 3]);
  first();
  first();
  expect([users.has('a'), users.count('a'), users.total()]).toEqual([true, 1, 2]);
  second();
  expect([users.has('a'), [...users.keys()], users.total()]).toEqual([false, ['b'], 1]);
});
