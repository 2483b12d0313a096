/**
 * An unchanged registration causes no query. The next registration still notices each commit in
 * between.
 */
import { LABELS } from '@berth/wire/vocabulary';
import { beforeEach, expect, test } from 'vitest';
import type { AllStores } from '../../src/store/open.ts';
import type { Driver } from '../../src/flow/driver.ts';
import { driverOn } from './driver.ts';
import { commit, deploymentIn, NOW, open, projectIn, routeOf } from '../store/fixtures.ts';

let stores: AllStores;
let driver: Driver;
let now = NOW;
let asked = 0;

beforeEach(async () => {
  const real = await open();
  const counted: AllStores = {
    ...real,
    deployments: {
      ...real.deployments,
      async concerning(node, named) {
        const concerned = await real.deployments.concerning(node, named);
        if (concerned !== null) asked++;
        return concerned;
      },
    },
  };
  [stores, now] = [counted, NOW];
  driver = driverOn(stores, () => now);
});

const container = (deployment: string, name = 'svc-shop') => ({
  name,
  labels: { [LABELS.deployment]: deployment },
  host_port: 4000,
  state: 'running',
});

/** Registers like the API half a minute later. Returns whether the database was queried. */
async function register(containers: ReturnType<typeof container>[]): Promise<boolean> {
  now += 30_000;
  const before = asked;
  const { node } = await stores.nodes.register(
    {
      hostname: 'h',
      role: 'deploy',
      host_ip: '10.0.0.1',
      max_storage: 1,
      agent_version: '1',
      containers,
    },
    now,
  );
  await driver.observed(node);
  return asked > before;
}

async function running(): Promise<{ project: string; node: string }> {
  await register([]);
  const [node] = await stores.nodes.all();
  const project = await projectIn(stores);
  const health = { status: 'healthy' as const, since: NOW, detail: null };
  await deploymentIn(stores, project, 'd1', {
    status: 'running',
    node_id: node?.id ?? '',
    host_port: 4000,
    route_published_at: NOW,
    health,
  });
  await commit(stores, project.id, {
    route: { set: routeOf(project, 'd1', node?.id ?? '', { host_port: 4000 }) },
  });
  return { project: project.id, node: node?.id ?? '' };
}
const health = async () => (await stores.deployments.get('d1')).health?.status;

test('an unchanged healthy node causes one query until its report changes', async () => {
  await running();
  expect([
    await register([container('d1')]),
    await register([container('d1')]),
    await register([container('d1')]),
  ]).toEqual([true, false, false]);
  expect(await register([{ ...container('d1'), state: 'exited' }])).toBe(true);
  expect(await health()).toBe('unhealthy');
  // It may become healthy by the passing of time alone, so each registration is decided.
  expect([await register([container('d1')]), await health()]).toEqual([true, 'healthy']);
  expect([await register([container('d1')]), await register([container('d1')])]).toEqual([
    true,
    false,
  ]);
});

test('an identical registration after silence changes the health from unknown to healthy', async () => {
  await running();
  await register([container('d1')]);
  await driver.advance('d1', { type: 'node_silent' });
  expect(await health()).toBe('unknown');
  expect([await register([container('d1')]), await health()]).toEqual([true, 'healthy']);
});

test('an unchanged report without the container of a new version makes it unhealthy', async () => {
  await running();
  await commit(stores, (await stores.deployments.get('d1')).project_id, {
    changeDeployments: [{ id: 'd1', from: 'running', set: { node_id: null } }],
  });
  expect([await register([]), await register([])]).toEqual([true, false]);
  const [node] = await stores.nodes.all();
  await commit(stores, (await stores.deployments.get('d1')).project_id, {
    changeDeployments: [{ id: 'd1', from: 'running', set: { node_id: node?.id ?? '' } }],
  });
  expect([await register([]), await health()]).toEqual([true, 'unhealthy']);
});

test('an unchanged report removes the container of a deployment that ended', async () => {
  const { project, node } = await running();
  await register([container('d1')]);
  await commit(stores, project, {
    changeDeployments: [{ id: 'd1', from: 'running', set: { status: 'retired' } }],
  });
  expect(await stores.tasks.openFor(node, now)).toEqual([]);
  await register([container('d1')]);
  expect(await stores.tasks.openFor(node, now)).toMatchObject([{ kind: 'retire' }]);
});

test('a query that overlaps a commit is not remembered', async () => {
  const { project } = await running();
  const { concerning } = stores.deployments;
  stores.deployments.concerning = async (node, named) => {
    const concerned = await concerning(node, named);
    stores.deployments.concerning = concerning;
    await commit(stores, project, {
      changeDeployments: [{ id: 'd1', from: 'running', set: { status: 'retired', node_id: null } }],
    });
    return concerned;
  };
  await register([container('d1')]);
  expect(await register([container('d1')])).toBe(true);
});
