/** A control plane that comes back must not punish agents for the time in which it was away itself. */
import { silentLogger } from '@berth/kit/log';
import { expect, test } from 'vitest';
import type { LoopDeps } from '../../src/loops/deps.ts';
import { leaseReaper } from '../../src/loops/lease-reaper.ts';

const LEASE_MS = 30_000;

/** A control plane that starts at 0 and finds one overdue task; what it took away at each of the times. */
async function taken(why: 'lease' | 'queue' | 'attempts' | 'wall', times: number[]): Promise<number[]> {
  let now = 0;
  const lost: number[] = [];
  const run = leaseReaper({
    stores: { tasks: { overdue: async () => [{ task: { id: 't', deployment_id: 'd' }, why }] } },
    driver: { advance: async () => void lost.push(now) },
    limits: { leaseMs: LEASE_MS, maxAttempts: 5 },
    now: () => now,
    log: silentLogger(),
  } as unknown as LoopDeps);
  for (now of times) await run(new AbortController().signal);
  return lost;
}

test.each(['lease', 'queue', 'attempts'] as const)('%s: not before an agent had a lease’s time to be heard', async (why) => {
  expect(await taken(why, [0, 1_000, LEASE_MS - 1, LEASE_MS])).toEqual([LEASE_MS]);
});

test('the wall clock of a task runs on: at once', async () => {
  expect(await taken('wall', [0])).toEqual([0]);
});
