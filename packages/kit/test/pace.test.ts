import { Worker } from 'node:worker_threads';
import { expect, onTestFinished, test, vi } from 'vitest';
import { createBreather, createPace, setGentle } from '../src/pace.ts';

/** Milliseconds of the processor, whatever else the machine does. */
function work(ms: number): void {
  const used = (): number => {
    // Else the thread's stands still from tick to tick.
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
/** Of `times` steps with a breath behind each: how long the breaths took. */
function breaths(breathe: () => void, times: number, stepMs: number): number {
  let all = 0;
  for (let i = 0; i < times; i++) {
    work(stepMs);
    all += timed(breathe);
  }
  return all;
}

test('gentle work rests as long as it worked; nothing is made good of what was done before', () => {
  const pace = createPace();
  const breathe = createBreather(pace);
  work(20);
  setGentle(pace, true);
  expect(timed(breathe)).toBeLessThan(10);
  // A rest may be longer on a busy machine, never shorter.
  expect(breaths(breathe, 10, 4)).toBeGreaterThan(36);
});

test('steps of less than a millisecond are put together to one rest', () => {
  const pace = createPace();
  const breathe = createBreather(pace);
  setGentle(pace, true);
  breathe();
  expect(breaths(breathe, 40, 0.25)).toBeGreaterThan(7);
});

test('it is never long at work, however short its steps are', () => {
  const pace = createPace();
  const breathe = createBreather(pace);
  const wait = vi.spyOn(Atomics, 'wait');
  onTestFinished(() => wait.mockRestore());
  setGentle(pace, true);
  // Not `work`, which itself brings the thread's time up to date.
  while (wait.mock.calls.length < 50) {
    for (const until = performance.now() + 0.05; performance.now() < until; );
    breathe();
  }
  // It rests as long as it had worked.
  const long = wait.mock.calls.filter(([, , , workedMs = Number.POSITIVE_INFINITY]) => workedMs > 1);
  expect(long.length).toBeLessThan(5);
});

test('work that nobody told to be gentle, or that may be quick again, never rests', () => {
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

test('a thread that rests goes on when it may', async () => {
  const pace = createPace();
  setGentle(pace, true);
  const script = `const { parentPort, workerData } = require('node:worker_threads');
parentPort.postMessage(Atomics.wait(workerData, 0, 1, 60_000));`;
  const resting = new Worker(script, { eval: true, workerData: pace });
  onTestFinished(() => void resting.terminate());
  const woken = new Promise((resolve) => resting.once('message', resolve));
  // Before it rests or while it does: either way it does not rest for its minute.
  await new Promise((resolve) => resting.once('online', resolve));
  setGentle(pace, false);
  expect(['ok', 'not-equal']).toContain(await woken);
});
