import { expect, test } from 'vitest';
import { createMutex } from '../../src/store/engine/mutex.ts';

test('who asks first goes first, and nobody who comes at a release goes before those who wait', async () => {
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
