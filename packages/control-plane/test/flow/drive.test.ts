/** The driver on the real store: races between two reads of the database. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { AllStores } from '../../src/store/open.ts';
import type { Driver } from '../../src/flow/driver.ts';
import { driverOn } from './driver.ts';
import { storesInMemory } from '../store/in-memory.ts';
import { COMMIT, DIGEST } from './fixtures.ts';

let stores: AllStores;
let driver: Driver;
let now = 1_000_000;
let paused: number[] = [];
const LEASE = { token: 'lease-1', expires_at: 1_030_000 };

async function underWay(): Promise<{ deployment: string; task: string; node: string }> {
  const { node } = await stores.nodes.register(
    { hostname: 'b', role: 'builder', host_ip: '10.0.0.9', max_storage: 1, agent_version: '1' },
    now,
  );
  const project = await stores.projects.create(
    { name: 'shop', git_url: 'https://git.example/x.git', domain_prefix: 'shop' },
    now,
  );
  const { deployment } = await driver.request({
    projectId: project.id,
    commit: null,
    note: null,
    rollbackOf: null,
    idempotency: null,
  });
  await driver.advance(deployment.id, { type: 'tick' });
  const [task] = await stores.tasks.openFor(node.id, now);
  if (task === undefined) throw new Error('no build task was made');
  return { deployment: deployment.id, task: task.id, node: node.id };
}

beforeEach(async () => {
  [now, paused] = [1_000_000, []];
  stores = await storesInMemory();
  driver = driverOn(
    stores,
    () => now,
    async (attempt) => void paused.push(attempt),
  );
});
afterEach(() => stores.close());

describe('a lost task that was not lost after all', () => {
  it('a task that was claimed after the reaper read it is not lost', async () => {
    const { deployment, task } = await underWay();
    const seen = await stores.tasks.get(task);
    await stores.tasks.claim(task, LEASE, now, 5);
    expect(
      await driver.advance(deployment, { type: 'task_lost', task: seen, why: 'queue' }),
    ).toMatchObject({ status: 'building' });
    expect(await stores.tasks.get(task)).toMatchObject({ status: 'running', attempt: 1 });
  });
  it('a lease that was renewed after the reaper read it is not lost', async () => {
    const { deployment, task } = await underWay();
    await stores.tasks.claim(task, LEASE, now, 5);
    const seen = await stores.tasks.get(task);
    now += 31_000;
    await stores.tasks.renew(task, LEASE.token, now + 30_000, now);
    expect(
      await driver.advance(deployment, { type: 'task_lost', task: seen, why: 'lease' }),
    ).toMatchObject({ status: 'building' });
  });
  it.each(['lease', 'attempts'] as const)(
    'a lease that is renewed while its loss is being written is not lost (%s)',
    async (why) => {
      const { deployment, task } = await underWay();
      await stores.tasks.claim(task, LEASE, now, 5);
      const seen = await stores.tasks.get(task);
      now += 31_000;
      const commit = stores.flow.commit;
      stores.flow.commit = async (plan) => {
        stores.flow.commit = commit;
        // The renewal succeeded, so the agent relies on it from here on.
        await stores.tasks.renew(task, LEASE.token, now + 30_000, now);
        return commit(plan);
      };
      expect(
        await driver.advance(deployment, { type: 'task_lost', task: seen, why }),
      ).toMatchObject({ status: 'building', losses: [] });
      expect(await stores.tasks.get(task)).toMatchObject({
        status: 'running',
        lease_expires_at: now + 30_000,
      });
    },
  );
  it('an expired lease is lost', async () => {
    const { deployment, task } = await underWay();
    await stores.tasks.claim(task, LEASE, now, 5);
    now += 31_000;
    expect(
      await driver.advance(deployment, {
        type: 'task_lost',
        task: await stores.tasks.get(task),
        why: 'lease',
      }),
    ).toMatchObject({
      status: 'pending',
      losses: [{ at: now }],
    });
    expect(await stores.tasks.get(task)).toMatchObject({ status: 'lost' });
  });
});

describe('reports', () => {
  const done = {
    status: 'completed',
    image_tag: `registry:5000/shop:${COMMIT}`,
    image_digest: DIGEST,
    commit: COMMIT,
  } as const;
  it('a repeated report has the same answer and no second effect, in any order of its fields', async () => {
    const { deployment, task } = await underWay();
    await stores.tasks.claim(task, LEASE, now, 5);
    expect(await driver.report(task, LEASE.token, done)).toEqual({ status: 'completed' });
    const after = await stores.deployments.get(deployment);
    const { commit, ...rest } = done;
    expect(await driver.report(task, LEASE.token, { commit, ...rest })).toEqual({
      status: 'completed',
    });
    expect(await stores.deployments.get(deployment)).toEqual(after);
  });
  it.each([
    ['another report after the end', LEASE.token, { ...done, commit: 'f'.repeat(40) }, 'task_over'],
    ['another token after the end', 'lease-0', done, 'stale_lease'],
    ['no token', null, done, 'stale_lease'],
  ])('%s is refused', async (_, token, report, code) => {
    const { task } = await underWay();
    await stores.tasks.claim(task, LEASE, now, 5);
    await driver.report(task, LEASE.token, done);
    await expect(driver.report(task, token, report)).rejects.toMatchObject({ code });
  });
  it('a report of a voided attempt is rejected, and the later attempt counts', async () => {
    const { deployment, task } = await underWay();
    await stores.tasks.claim(task, LEASE, now, 5);
    await stores.tasks.claim(task, { token: 'lease-2', expires_at: now + 30_000 }, now, 5);
    await expect(driver.report(task, LEASE.token, done)).rejects.toMatchObject({
      code: 'stale_lease',
    });
    expect(await driver.report(task, 'lease-2', done)).toEqual({ status: 'completed' });
    expect(await stores.deployments.get(deployment)).toMatchObject({ status: 'built' });
  });
  it('a completed build must name its image', async () => {
    const { task } = await underWay();
    await expect(driver.report(task, null, { status: 'completed' })).rejects.toMatchObject({
      code: 'validation',
      fields: [{ field: 'image_tag' }],
    });
  });
});

it('a stale decision is repeated with increasing pauses', async () => {
  const { deployment } = await underWay();
  const { commit } = stores.flow;
  stores.flow.commit = (plan) => (paused.length < 4 ? Promise.resolve('stale') : commit(plan));
  await driver.advance(deployment, { type: 'cancel' });
  expect(paused).toEqual([0, 1, 2, 3]);
});

it('concurrent events of one project are all decided on current facts, and none is lost', async () => {
  const { deployment } = await underWay();
  const { project_id } = await stores.deployments.get(deployment);
  const made = await Promise.all(
    Array.from({ length: 8 }, () =>
      driver.request({
        projectId: project_id,
        commit: null,
        note: null,
        rollbackOf: null,
        idempotency: null,
      }),
    ),
  );
  expect(new Set(made.map((m) => m.deployment.generation)).size).toBe(8);
  const { items } = await stores.deployments.list({ project_id }, { limit: 50, cursor: null });
  expect(items.filter((d) => d.status === 'pending').map((d) => d.generation)).toEqual([9]);
  expect(items.filter((d) => d.status === 'superseded')).toHaveLength(8);
});
