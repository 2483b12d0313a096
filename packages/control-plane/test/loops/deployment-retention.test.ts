/** The pace of retention. The tests of the store cover what it removes. */
import { silentLogger } from '@berth/kit/log';
import { expect, test } from 'vitest';
import type { Removed, RetentionPass } from '../../src/domain/deployments/retention.ts';
import { deploymentRetention } from '../../src/loops/deployment-retention.ts';

const NOTHING: Removed = { thinned: 0, logs: 0, nodes: [] };

function given({ steps = 3, people = false, claimed = true, failAt = 0, workMs = 0 } = {}) {
  const seen = { passes: 0, steps: 0 };
  async function* pass(): RetentionPass {
    for (let i = 1; i <= steps; i++) {
      const until = performance.now() + workMs;
      while (performance.now() < until);
      seen.steps++;
      if (i === failAt) throw new Error('the database is away');
      yield;
    }
    return NOTHING;
  }
  const retention = {
    begin: () => {
      seen.passes++;
      return Promise.resolve(pass());
    },
    claim: () => Promise.resolve(claimed),
  };
  const run = deploymentRetention({
    retention,
    presence: { arePeopleHere: () => people },
    keep: { deployments: 1, ms: 1, logBytes: 1 },
    now: Date.now,
    log: silentLogger(),
  });
  return { seen, run };
}

test('a finished pass does not start again at the next run', async () => {
  const { seen, run } = given();
  await run(new AbortController().signal);
  await run(new AbortController().signal);
  expect(seen).toEqual({ passes: 1, steps: 3 });
});

test('an interrupted pass continues', async () => {
  const { seen, run } = given({ steps: 50, people: true });
  const stop = new AbortController();
  const running = run(stop.signal);
  await expect.poll(() => seen.steps).toBeGreaterThan(2);
  stop.abort();
  await running;
  const before = seen.steps;
  expect(before).toBeLessThan(50);
  const again = new AbortController();
  const next = run(again.signal);
  await expect.poll(() => seen.steps).toBeGreaterThan(before);
  again.abort();
  await next;
  expect(seen.passes).toBe(1);
});

test('while people use the API it pauses nine times as long as it works', async () => {
  const timed = async (people: boolean): Promise<number> => {
    const began = performance.now();
    await given({ steps: 5, people, workMs: 10 }).run(new AbortController().signal);
    return performance.now() - began;
  };
  expect(await timed(true)).toBeGreaterThanOrEqual(5 * (10 + 90) - 5);
  expect(await timed(false)).toBeGreaterThanOrEqual(5 * (10 + 9));
});

test('a failed pass is logged, and the next run starts another one', async () => {
  const { seen, run } = given({ failAt: 2 });
  await expect(run(new AbortController().signal)).rejects.toThrow('the database is away');
  await expect(run(new AbortController().signal)).rejects.toThrow('the database is away');
  expect(seen.passes).toBe(2);
});

test('it does nothing while another control plane has the claim', async () => {
  const { seen, run } = given({ claimed: false });
  await run(new AbortController().signal);
  expect(seen).toEqual({ passes: 0, steps: 0 });
});
