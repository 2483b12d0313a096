/** Work on a container that always fails: retries become rare, and their tasks do not pile up. */
import { LABELS } from '@berth/wire/vocabulary';
import { beforeEach, expect, it } from 'vitest';
import { createChanges } from '../../src/domain/platform/changes.ts';
import { DEFAULT_LIMITS } from '../../src/domain/deployments/facts.ts';
import type { AllStores } from '../../src/store/open.ts';
import { createCacheIndex } from '../../src/domain/nodes/cache-index.ts';
import { createDriver, type Driver } from '../../src/flow/driver.ts';
import { steadyUptime } from '../steady-uptime.ts';
import { commit, deploymentIn, NOW, open, projectIn } from '../store/fixtures.ts';
import { facts } from './fixtures.ts';

const HALF_MINUTE = 30_000;
const container = {
  name: 'svc-shop',
  labels: { [LABELS.deployment]: 'd1' },
  host_port: 4000,
  state: 'running',
};
const failed = {
  status: 'failed',
  result: { error: { code: 'container_remove_failed', message: 'device or resource busy' } },
} as const;
let stores: AllStores;
let driver: Driver;
let now = NOW;
let ids = 0;
let node = '';
let project: Awaited<ReturnType<typeof projectIn>>;

beforeEach(async () => {
  [now, ids] = [NOW, 0];
  // In memory, because one day has six thousand commits.
  stores = await open(':memory:');
  const deps = {
    stores,
    changes: createChanges(),
    limits: DEFAULT_LIMITS,
    platform: facts().platform,
    now: () => now,
  };
  driver = createDriver({
    cacheIndex: createCacheIndex(),
    ...deps,
    uptime: steadyUptime(() => now),
    pause: async () => {},
    newId: () => `id-${++ids}`,
  });
  await register();
  project = await projectIn(stores);
  await deploymentIn(stores, project, 'd1', {
    status: 'running',
    node_id: node,
    host_port: 4000,
    route_published_at: NOW,
    finished_at: NOW,
  });
  await commit(stores, project.id, {
    changeDeployments: [{ id: 'd1', from: 'running', set: { status: 'retired' } }],
  });
});

async function register(): Promise<void> {
  const body = {
    hostname: 'h',
    role: 'deploy',
    host_ip: '10.0.0.1',
    max_storage: 1,
    agent_version: '1',
    containers: [container],
  } as const;
  const registered = (await stores.nodes.register(body as never, now)).node;
  node = registered.id;
  await driver.observed(registered);
}

/** The node reports twice a minute and does each task. Returns the number of tasks. */
async function days(count: number, report: object): Promise<number> {
  let tasks = 0;
  for (const end = now + count * 86_400_000; now < end; ) {
    now += HALF_MINUTE;
    await register();
    for (const task of await stores.tasks.openFor(node, now)) {
      tasks += 1;
      await stores.tasks.claim(task.id, { token: `l-${tasks}`, expires_at: now + 1 }, now, 5);
      await driver.report(task.id, `l-${tasks}`, report as never);
    }
  }
  return tasks;
}

it('a removal that always fails is retried about once an hour, and few tasks are kept', {
  timeout: 60_000,
}, async () => {
  const tries = await days(1, failed);
  expect(tries).toBeGreaterThan(20);
  expect(tries).toBeLessThan(40);
  const kept = await Promise.all(
    Array.from({ length: ids }, (_, i) => stores.tasks.get(`id-${i + 1}`).catch(() => null)),
  );
  expect(kept.filter((task) => task !== null).length).toBeLessThanOrEqual(6);
  expect((await stores.deployments.get('d1')).retry?.tries).toBe(tries);
});

it('a removal that fails once is retried within 90 s', async () => {
  await register();
  const [task] = await stores.tasks.openFor(node, now);
  await stores.tasks.claim(task?.id ?? '', { token: 'l', expires_at: now + 1 }, now, 5);
  await driver.report(task?.id ?? '', 'l', failed);
  for (let i = 0; i < 3; i++) {
    now += HALF_MINUTE;
    await register();
  }
  expect(await stores.tasks.openFor(node, now)).toHaveLength(1);
});

it('a container that could not be stopped for long is removed at once when its version ends', async () => {
  await deploymentIn(stores, project, 'd2', {
    status: 'running',
    node_id: node,
    host_port: 4001,
    finished_at: NOW,
  });
  const retry = { tries: 9, not_before: now + 300_000 };
  await commit(stores, project.id, {
    changeDeployments: [{ id: 'd2', from: 'running', set: { retry } }],
  });
  await driver.advance('d2', { type: 'project_deleted' });
  const [task] = await stores.tasks.openFor(node, now);
  await stores.tasks.claim(task?.id ?? '', { token: 'l', expires_at: now + 1 }, now, 5);
  await driver.report(task?.id ?? '', 'l', failed);
  container.labels[LABELS.deployment] = 'd2';
  await register();
  container.labels[LABELS.deployment] = 'd1';
  expect(await stores.tasks.openFor(node, now)).toMatchObject([
    { kind: 'retire', deployment_id: 'd2' },
  ]);
});
