/** Locks by key. */
import { expect, it } from 'vitest';
import { createLocks } from '../src/locks.ts';

it('locks have one holder at a time, in order, and an aborted waiter blocks no other', async () => {
  const locks = createLocks();
  const never = new AbortController().signal;
  const order: number[] = [];
  const release = await locks.acquire('k', never);
  const second = locks.acquire('k', AbortSignal.timeout(20));
  const third = locks.acquire('k', never).then((r) => (order.push(3), r));
  await expect(second).rejects.toThrow();
  expect(order).toEqual([]);
  release();
  (await third)();
  (await locks.acquire('other', never))();
  expect(order).toEqual([3]);
});
