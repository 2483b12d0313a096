/** Leftovers of tasks that were cancelled in the middle (found by the simulator). */
import { expect, it } from 'vitest';
import { advance } from '../../src/flow/deployment.ts';
import {
  deploymentIn,
  nodeIn,
  NOW as STORE_NOW,
  open,
  projectIn,
  taskOf,
  tasksIn,
} from '../store/fixtures.ts';
import { facts, NOW, old, on, routeTo } from './fixtures.ts';

it('a version with a published route drains when it is cancelled, because the proxy may send requests to it', () => {
  const d = on.published({ route_published_at: NOW - 1e6 });
  const plan = advance(d, { type: 'tick' }, facts({ live: [old(), d], route: routeTo(d) }));
  expect(plan.createTasks).toMatchObject([
    { kind: 'retire', payload: { remove: [{ deployment_id: 'd2' }], drain_seconds: 5 } },
  ]);
});

const NOTHING = {
  createDeployment: null,
  changeDeployments: [],
  createTasks: [],
  route: null,
  storyLines: [],
  push: null,
  volumes: [],
  now: STORE_NOW + 5,
  uptime: STORE_NOW + 5,
};

it('a deleted project stays until a node that lost its task has reported, because its container may be unknown', async () => {
  const stores = await open();
  const shop = await projectIn(stores);
  const looks = { role: 'deploy' as const, agent_version: '1', containers: [] };
  const node = await nodeIn(stores, 'w1', looks);
  await deploymentIn(stores, shop, 'd1');
  await tasksIn(stores, shop, {
    ...taskOf(shop, 't1', node.id, { deployment_id: 'd1' }),
    kind: 'deploy',
  } as never);
  await stores.tasks.claim('t1', { token: 'l', expires_at: STORE_NOW + 1 }, STORE_NOW, 5);
  await stores.projects.markDeleting(shop.id, STORE_NOW);
  const { flow_version } = await stores.projects.get(shop.id);
  const ended = {
    project: { id: shop.id, flow_version },
    changeTasks: [{ id: 't1', attempt: 1, end: 'cancelled' as const }],
  };
  expect(await stores.flow.commit({ ...NOTHING, ...ended })).toBe('committed');

  expect(await stores.projects.removeIfGone(shop.id)).toBe(false);
  await nodeIn(stores, 'w1', looks, STORE_NOW + 6);
  await stores.nodes.flush?.();
  expect(await stores.projects.removeIfGone(shop.id)).toBe(true);
});

it('a deleted project stays if no agent claimed the removal of its container, also when the history of the deployment is gone', async () => {
  const stores = await open();
  const shop = await projectIn(stores);
  // Its last list is older than the container.
  const node = await nodeIn(stores, 'w1', { role: 'deploy', agent_version: '1', containers: [] });
  await deploymentIn(stores, shop, 'd1');
  await tasksIn(stores, shop, {
    ...taskOf(shop, 't1', node.id, { deployment_id: 'd1' }),
    kind: 'retire',
  } as never);
  await stores.projects.markDeleting(shop.id, STORE_NOW);
  const { flow_version } = await stores.projects.get(shop.id);
  const lost = {
    ...NOTHING,
    project: { id: shop.id, flow_version },
    changeTasks: [{ id: 't1', attempt: 0, end: 'lost' as const }],
  };
  expect(await stores.flow.commit(lost)).toBe('committed');

  expect(await stores.projects.removeIfGone(shop.id)).toBe(false);
  await nodeIn(stores, 'w1', { role: 'deploy', agent_version: '1', containers: [] }, STORE_NOW + 6);
  await stores.nodes.flush?.();
  expect(await stores.projects.removeIfGone(shop.id)).toBe(true);
});

it('a deleted project whose node never reports again goes when an admin deletes the node with force', async () => {
  const stores = await open();
  const shop = await projectIn(stores);
  const labels = { 'berth.project': shop.id, 'berth.deployment': 'd1' };
  const containers = [{ name: 'svc-shop', labels, host_port: 32_000, state: 'running' as const }];
  const node = await nodeIn(stores, 'w1', { role: 'deploy', agent_version: '1', containers });
  await stores.projects.markDeleting(shop.id, STORE_NOW);

  expect(await stores.projects.removeIfGone(shop.id)).toBe(false);
  expect(await stores.nodes.removeIfGone(node.id, true)).toBe(false);
  await stores.nodes.markDeleting(node.id, STORE_NOW);
  expect(await stores.nodes.removeIfGone(node.id, true)).toBe(true);
  expect(await stores.projects.removeIfGone(shop.id)).toBe(true);
});
