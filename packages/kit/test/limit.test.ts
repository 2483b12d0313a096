import { expect, test } from 'vitest';
import { createLimit } from '../src/limit.ts';

/** A job that ends when the test says so. */
function job() {
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  let started = false;
  return {
    run: () => ((started = true), promise),
    hasStarted: () => started,
    end: resolve,
    fail: reject,
  };
}
const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

test('runs at most the given number of jobs, the others in the order in which they came', async () => {
  const limit = createLimit(2);
  const jobs = [job(), job(), job(), job()] as const;
  const results = jobs.map((one) => limit(one.run));
  const started = (): boolean[] => jobs.map((one) => one.hasStarted());
  await settled();
  expect(started()).toEqual([true, true, false, false]);
  jobs[1].end('second');
  await settled();
  expect(started()).toEqual([true, true, true, false]);
  jobs[0].fail(new Error('first'));
  await expect(results[0]).rejects.toThrow('first');
  await settled();
  expect(started()).toEqual([true, true, true, true]);
  jobs[2].end('third');
  jobs[3].end('fourth');
  expect(await Promise.all(results.slice(1))).toEqual(['second', 'third', 'fourth']);
});

test('a job whose signal aborts leaves the queue, and the next one gets its place', async () => {
  const limit = createLimit(1);
  const [running, waiting, next] = [job(), job(), job()];
  const leaving = new AbortController();
  const first = limit(running.run);
  const second = limit(waiting.run, leaving.signal);
  const third = limit(next.run);
  await settled();
  leaving.abort(new Error('cancelled'));
  await expect(second).rejects.toThrow('cancelled');
  running.end('done');
  next.end('next');
  expect([await first, await third, waiting.hasStarted()]).toEqual(['done', 'next', false]);
});

test('a signal that has aborted starts nothing', async () => {
  const one = job();
  const aborted = AbortSignal.abort(new Error('too late'));
  await expect(createLimit(1)(one.run, aborted)).rejects.toThrow('too late');
  expect(one.hasStarted()).toBe(false);
});
