import { Worker } from 'node:worker_threads';
import { expect, onTestFinished, test, vi } from 'vitest';
import { createBreather, createPace, setGentle } from '../src/pace.ts';

/** Uses the processor for this many ms, independent of other load on the machine. */
function work(ms: number): void {
  const used = (): number => {
    // Otherwise Linux updates the thread's time only at each kernel tick.
    process.cpuUsage();
    const { user, system } = process.threadCpuUsage();
    return user + system;
  };
  const until = used() + ms * 1000;
  while (used() < until);
}
function timed(what: () => void): number {
  const began = performance.now();
  what();
  return performance.now() - began;
}
/** Runs `times` steps with a rest after each, and returns the total time of the rests. */
function breaths(breathe: () => void, times: number, stepMs: number): number {
  let all = 0;
  for (let i = 0; i < times; i++) {
    work(stepMs);
    all += timed(breathe);
  }
  return all;
}

test('gentle work rests as long as it worked since the pace became gentle', () => {
  const pace = createPace();
  const breathe = createBreather(pace);
  const wait = vi.spyOn(Atomics, 'wait');
  onTestFinished(() => wait.mockRestore());
  work(20);
  setGentle(pace, true);
  breathe();
  expect(wait).not.toHaveBeenCalled();
  // On a busy machine a rest may be longer, but never shorter.
  expect(breaths(breathe, 10, 4)).toBeGreaterThan(36);
});

test('short steps share one rest', () => {
  const pace = createPace();
  const breathe = createBreather(pace);
  setGentle(pace, true);
  breathe();
  expect(breaths(breathe, 40, 0.25)).toBeGreaterThan(7);
});

test('a thread with very short steps still rests regularly', () => {
  const pace = createPace();
  const breathe = createBreather(pace);
  const wait = vi.spyOn(Atomics, 'wait');
  onTestFinished(() => wait.mockRestore());
  setGentle(pace, true);
  // Do not use `work` here, because it updates the thread's time itself.
  while (wait.mock.calls.length < 50) {
    for (const until = performance.now() + 0.05; performance.now() < until; );
    breathe();
  }
  // The rest is as long as the work.
  const long = wait.mock.calls.filter(
    ([, , , workedMs = Number.POSITIVE_INFINITY]) => workedMs > 1,
  );
  expect(long.length).toBeLessThan(5);
});

test('work never rests before the pace is gentle, or after it is no longer gentle', () => {
  const pace = createPace();
  const breathe = createBreather(pace);
  const wait = vi.spyOn(Atomics, 'wait');
  onTestFinished(() => wait.mockRestore());
  breaths(breathe, 5, 2);
  setGentle(pace, true);
  breathe();
  setGentle(pace, false);
  breaths(breathe, 5, 2);
  expect(wait).not.toHaveBeenCalled();
  setGentle(pace, true);
  breathe();
  breaths(breathe, 5, 2);
  expect(wait).toHaveBeenCalledTimes(5);
});

test('a resting thread continues when the pace is no longer gentle', async () => {
  const pace = createPace();
  setGentle(pace, true);
  const script = `const { parentPort, workerData } = require('node:worker_threads');
parentPort.postMessage(Atomics.wait(workerData, 0, 1, 60_000));`;
  const resting = new Worker(script, { eval: true, workerData: pace });
  onTestFinished(() => void resting.terminate());
  const woken = new Promise((resolve) => resting.once('message', resolve));
  // The change may come before or during the rest. In both cases the thread does not rest for the
  // full time.
  await new Promise((resolve) => resting.once('online', resolve));
  setGentle(pace, false);
  expect(['ok', 'not-equal']).toContain(await woken);
});
