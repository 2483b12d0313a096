/**
 * Health is `healthy` only while the node reports the container. It is `unknown` while the node or
 * its engine is silent.
 */
import { LABELS } from '@berth/wire/vocabulary';
import { beforeEach, expect, it } from 'vitest';
import { createChanges } from '../../src/domain/platform/changes.ts';
import { DEFAULT_LIMITS } from '../../src/domain/deployments/facts.ts';
import type { AllStores } from '../../src/store/open.ts';
import type { UptimeClock } from '../../src/domain/platform/uptime.ts';
import { createCacheIndex } from '../../src/domain/nodes/cache-index.ts';
import { createDriver, type Driver } from '../../src/flow/driver.ts';
import { nodeWatch } from '../../src/loops/node-watch.ts';
import { facts } from '../flow/fixtures.ts';
import { NOW, commit, deploymentIn, open, projectIn, routeOf } from '../store/fixtures.ts';

const MINUTE = 60_000;
let stores: AllStores;
let driver: Driver;
let now = NOW;
let since = 0;

beforeEach(async () => {
  [now, since] = [NOW, 0];
  stores = await open();
  const uptime: UptimeClock = {
    now: () => Promise.resolve({ at: now, since }),
    estimate: () => ({ at: now, since }),
  };
  const deps = {
    stores,
    changes: createChanges(),
    limits: DEFAULT_LIMITS,
    platform: facts().platform,
    now: () => now,
    uptime,
  };
  driver = createDriver({
    cacheIndex: createCacheIndex(),
    ...deps,
    pause: async () => {},
    newId: () => 'x',
  });
});

type Seen = { agent_version?: string; containers?: object[] };
async function register(seen: Seen): Promise<string> {
  const body = {
    hostname: 'node-1',
    role: 'deploy',
    host_ip: '10.0.0.1',
    max_storage: 1,
    ...seen,
  } as never;
  const { node } = await stores.nodes.register(body, now);
  await driver.observed(node);
  return node.id;
}
const container = {
  name: 'svc-shop',
  labels: { [LABELS.deployment]: 'd1' },
  host_port: 4000,
  state: 'running',
};
async function running(seen: Seen): Promise<void> {
  const node_id = await register(seen);
  const health = { status: 'healthy' as const, since: NOW, detail: null };
  const serves = { node_id, host_port: 4000, route_published_at: NOW, finished_at: NOW, health };
  const project = await projectIn(stores);
  await deploymentIn(stores, project, 'd1', { status: 'running', ...serves });
  await commit(stores, project.id, {
    route: { set: routeOf(project, 'd1', node_id, { host_port: 4000 }) },
  });
}
/** The node registers every 30 s, and the loop runs. */
async function pass(minutes: number, seen: Seen): Promise<void> {
  for (let i = 0; i < 2 * minutes; i++) {
    now += MINUTE / 2;
    await register(seen);
    await watch();
  }
}
const watch = async (): Promise<void> =>
  nodeWatch({
    changes: createChanges(),
    ...stores,
    driver,
    limits: DEFAULT_LIMITS,
    now: () => now,
    uptime: { now: async () => ({ at: now, since }) },
  })(new AbortController().signal);
const health = async () => (await stores.deployments.get('d1')).health;

it('health is unknown while a node registers without its containers', async () => {
  await running({ agent_version: '1', containers: [container] });
  await pass(1, { agent_version: '1' });
  expect(await health()).toMatchObject({ status: 'healthy' });
  await pass(2, { agent_version: '1' });
  expect(await health()).toMatchObject({
    status: 'unknown',
    detail: 'node-1 registers, but does not report its containers; the route stays',
  });
  await pass(1, { agent_version: '1', containers: [container] });
  expect(await health()).toMatchObject({ status: 'healthy' });
});

it('health is unknown after the offline time if an agent never reports containers', async () => {
  await running({});
  await pass(3, {});
  const detail = 'node-1 registers, but its agent does not report containers; the route stays';
  expect(await health()).toMatchObject({ status: 'unknown', detail });
});

it('nodes get the whole offline time again after an outage of the control plane', async () => {
  await running({ agent_version: '1', containers: [container] });
  now += 60 * MINUTE;
  since = now - MINUTE;
  await watch();
  expect(await health()).toMatchObject({ status: 'healthy' });
  now += 2 * MINUTE;
  await watch();
  expect(await health()).toMatchObject({
    status: 'unknown',
    detail: 'node-1 is offline; the route stays',
  });
});
