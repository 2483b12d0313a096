import { expect, test } from 'vitest';
import { createMutex } from '../../src/store/engine/mutex.ts';

test('the mutex is first come, first served, and a newcomer at a release does not overtake the waiters', async () => {
  const mutex = createMutex();
  const order: string[] = [];
  const one = async (name: string): Promise<void> => {
    await mutex.acquire();
    order.push(name);
    if (name === 'a') void one('late');
    mutex.release();
  };
  await Promise.all(['a', 'b', 'c'].map(one));
  await mutex.acquire();
  expect(order).toEqual(['a', 'b', 'c', 'late']);
});
