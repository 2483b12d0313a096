import { expect, test } from 'vitest';
import { createTurns } from '../../src/store/engine/turns.ts';

test('who asks first goes first, and nobody who comes at a release goes before those who wait', async () => {
  const turns = createTurns();
  const order: string[] = [];
  const one = async (name: string): Promise<void> => {
    await turns.take();
    order.push(name);
    if (name === 'a') void one('late');
    turns.end();
  };
  await Promise.all(['a', 'b', 'c'].map(one));
  await turns.take();
  expect(order).toEqual(['a', 'b', 'c', 'late']);
});
