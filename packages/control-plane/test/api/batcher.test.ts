import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { createBatcher } from '../../src/api/batcher.ts';

const EVERY_MS = 50;

function given(atOnce: number) {
  const done: number[] = [];
  const take = createBatcher(EVERY_MS, atOnce);
  return { done, work: (n: number) => take(() => void done.push(n)) };
}

describe('requests that may wait are worked in together', () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  test('one that comes alone is handled at once, however many such there are', () => {
    const { done, work } = given(10);
    for (const n of [1, 2, 3]) {
      work(n);
      expect(done.at(-1)).toBe(n);
      vi.advanceTimersByTime(EVERY_MS);
    }
  });

  test('one close behind another waits, and those after it go with it, in order', () => {
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

  test('many at once are handled in parts, between which other events have their turn', () => {
    const { done, work } = given(10);
    for (let n = 0; n < 36; n++) work(n);
    const parts = [done.length];
    vi.advanceTimersByTime(EVERY_MS);
    for (parts.push(done.length); done.length < 36; parts.push(done.length)) vi.advanceTimersToNextTimer();
    expect(parts).toEqual([1, 11, 21, 31, 36]);
    expect(done).toEqual([...Array(36).keys()]);
  });
});
