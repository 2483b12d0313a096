import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { backoff } from '../src/backoff.ts';
import { silentLogger } from '../src/log.ts';
import { type Loop, startLoop } from '../src/loop.ts';

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

/** A loop whose runs the test ends. */
function controlled(periodMs = 1_000): {
  loop: Loop;
  runs: PromiseWithResolvers<void>[];
  signals: AbortSignal[];
} {
  const runs: PromiseWithResolvers<void>[] = [];
  const signals: AbortSignal[] = [];
  const loop = startLoop(
    {
      name: 'test',
      periodMs,
      run: (signal) => {
        const run = Promise.withResolvers<void>();
        runs.push(run);
        signals.push(signal);
        return run.promise;
      },
    },
    silentLogger(),
  );
  return { loop, runs, signals };
}
const settle = (ms = 0): Promise<unknown> => vi.advanceTimersByTimeAsync(ms);

describe('a loop', () => {
  test('runs immediately, then one period after the end of each run', async () => {
    const { runs } = controlled();
    await settle();
    expect(runs).toHaveLength(1);
    await settle(5_000);
    expect(runs, 'never twice at once').toHaveLength(1);
    runs[0]?.resolve();
    await settle(999);
    expect(runs).toHaveLength(1);
    await settle(1);
    expect(runs).toHaveLength(2);
  });

  test('a wake between runs starts a run; several wakes during a run start one more', async () => {
    const { loop, runs } = controlled();
    await settle();
    runs[0]?.resolve();
    await settle();
    loop.wake();
    await settle();
    expect(runs).toHaveLength(2);
    for (let i = 0; i < 5; i += 1) loop.wake();
    await settle();
    expect(runs).toHaveLength(2);
    runs[1]?.resolve();
    await settle();
    expect(runs).toHaveLength(3);
    runs[2]?.resolve();
    await settle(999);
    expect(runs).toHaveLength(3);
  });

  test('an error is reported, does not end the loop, and does not make it spin even if it is woken often', async () => {
    const { loop, runs } = controlled();
    await settle();
    loop.wake();
    runs[0]?.reject(new Error('broken'));
    await settle(500);
    expect(loop.status()).toEqual({ lastOkAt: null, lastError: 'broken' });
    expect(runs).toHaveLength(1);
    await settle(500);
    expect(runs).toHaveLength(2);
    runs[1]?.resolve();
    await settle();
    expect(loop.status()).toMatchObject({ lastError: null, lastOkAt: expect.any(Number) });
  });

  test('a run that throws before its first await behaves the same', async () => {
    let runs = 0;
    const loop = startLoop(
      {
        name: 'test',
        periodMs: 10,
        run: () => {
          runs += 1;
          throw new Error('at once');
        },
      },
      silentLogger(),
    );
    await settle(25);
    expect(runs).toBe(3);
    await loop.stop();
  });

  test('a run that did a part of its work counts as failing, and a wake starts the next one at once', async () => {
    const problems: (string | undefined)[] = ['1 of 2 failed', undefined];
    let runs = 0;
    const run = async (): Promise<string | undefined> => problems[runs++];
    const loop = startLoop({ name: 'test', periodMs: 1_000, run }, silentLogger());
    await settle();
    expect(loop.status()).toEqual({ lastOkAt: null, lastError: '1 of 2 failed' });
    loop.wake();
    await settle();
    expect(runs).toBe(2);
    expect(loop.status()).toEqual({ lastOkAt: expect.any(Number), lastError: null });
    await loop.stop();
  });

  test('a wake right after an error waits for the period', async () => {
    const { loop, runs } = controlled();
    await settle();
    runs[0]?.reject(new Error('broken'));
    await settle();
    for (let i = 0; i < 20; i += 1) {
      loop.wake();
      await settle();
      runs.at(-1)?.reject(new Error('broken'));
      await settle();
    }
    expect(runs.length).toBeLessThan(3);
  });

  test('stop aborts the current run, waits for it, and no run follows', async () => {
    const { loop, runs, signals } = controlled();
    await settle();
    loop.wake();
    let stopped = false;
    const stopping = loop.stop().then(() => {
      stopped = true;
    });
    await settle();
    expect([signals[0]?.aborted, stopped]).toEqual([true, false]);
    runs[0]?.reject(new Error('aborted'));
    await stopping;
    loop.wake();
    await settle(10_000);
    expect(runs).toHaveLength(1);
    expect(loop.status().lastError, 'an abort is no failure').toBe(null);
  });

  test('a loop that is stopped before its first run never runs', async () => {
    const { loop, runs } = controlled();
    await loop.stop();
    await settle(10_000);
    expect(runs).toHaveLength(0);
  });
});

describe('backoff', () => {
  const range = { min: 100, max: 2_000 };
  test.each([
    [0, 0, 50],
    [0, 1, 100],
    [1, 0, 100],
    [4, 1, 1_600],
    [5, 1, 2_000],
    [1_000_000, 1, 2_000],
  ])('attempt %i with random value %d: %i ms', (attempt, random, expected) => {
    expect(backoff(attempt, range, () => random)).toBe(expected);
  });
});
