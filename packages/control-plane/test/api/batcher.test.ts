import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { createBatcher } from '../../src/api/batcher.ts';

const EVERY_MS = 50;

function given(atOnce: number) {
  const done: number[] = [];
  const take = createBatcher(EVERY_MS, atOnce);
  return { done, work: (n: number) => take(() => void done.push(n)) };
}

describe('work that may wait is batched', () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  test('work that arrives alone runs at once, every time', () => {
    const { done, work } = given(10);
    for (const n of [1, 2, 3]) {
      work(n);
      expect(done.at(-1)).toBe(n);
      vi.advanceTimersByTime(EVERY_MS);
    }
  });

  test('work that follows closely waits, and runs in one batch with later work, in order', () => {
    const { done, work } = given(10);
    work(1);
    vi.advanceTimersByTime(EVERY_MS - 1);
    work(2);
    vi.advanceTimersByTime(EVERY_MS - 1);
    work(3);
    expect(done).toEqual([1]);
    vi.advanceTimersByTime(1);
    expect(done).toEqual([1, 2, 3]);
  });

  test('much work at once runs in several batches, and other events are handled between them', () => {
    const { done, work } = given(10);
    for (let n = 0; n < 36; n++) work(n);
    const parts = [done.length];
    vi.advanceTimersByTime(EVERY_MS);
    for (parts.push(done.length); done.length < 36; parts.push(done.length))
      vi.advanceTimersToNextTimer();
    expect(parts).toEqual([1, 11, 21, 31, 36]);
    expect(done).toEqual([...Array(36).keys()]);
  });
});
