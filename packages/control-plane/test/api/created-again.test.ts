/** A version that was stopped for one that failed serves again, also if its container is gone. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { DEFAULT_LIMITS } from '../../src/domain/deployments/facts.ts';
import { createWorld } from './deployed.ts';
import { type Api, createApi, createProject, deploy, register, tick } from './harness.ts';

let api: Api;
beforeAll(async () => void (api = await createApi()), 60_000);
afterAll(() => api.close());

test('its node lists no container of it: the container is created again, and the route returns', async () => {
  const world = await createWorld(api);
  const list = async (containers: object[]): Promise<void> => {
    api.pass(1000);
    await register(api, { hostname: 'node-1', role: 'deploy', memory_bytes: 1e9, containers });
  };
  const get = async (id: string) =>
    (await api.call('getDeployment', { params: { id } })).json as {
      status: string;
      waiting: string | null;
      health: { status: string; detail: string | null };
    };
  await list([]);
  const project = await createProject(api, { memory_bytes: 600_000_000 });
  const first = await world.live(project);

  // There is room for one version only: the first one stops.
  const second = await deploy(api, project);
  await tick(api, second);
  await world.built();
  await tick(api, second);
  const at = { host_ip: '10.0.0.7', host_port: 32_002 };
  expect(await world.work(world.home, at)).toMatchObject({ replace: 'recreate' });
  await api.driver.advance(second, {
    type: 'route_unreachable',
    ...at,
    proxy: 'http://proxy',
    saw: '502',
  });
  expect((await get(second)).status).toBe('failed');
  await world.work(world.home, {});
  // Somebody has removed the stopped container: the restart fails, and the node lists nothing.
  const fails = { code: 'container_start_failed', message: 'it does not exist' };
  const restart = { status: 'failed', result: { error: fails } };
  expect(await world.work(world.home, restart)).toMatchObject({ start: first });
  // Until its agent had time to clean up, a failed task might still do something.
  api.pass(DEFAULT_LIMITS.leaseMs);
  await api.call('agentTasks', { query: { node_id: world.home } });
  await list([]);

  expect((await get(first)).waiting).toBe(
    'its container does not exist any more on node-1; it is created again',
  );
  expect(await world.work(world.home, { host_port: 32_003, container_id: 'c3' })).toMatchObject({
    generation: 1,
    replaces: first,
  });
  expect(await get(first)).toMatchObject({
    status: 'running',
    waiting: null,
    health: { status: 'healthy' },
  });
  expect(await api.stores.routes.all()).toMatchObject([
    { deployment_id: first, host_port: 32_003 },
  ]);
  // The container gets its name, and the list that shows it changes nothing.
  expect(await world.work(world.home, {})).toMatchObject({ keep: { deployment_id: first } });
  await list([
    {
      id: 'c3',
      name: 'svc-shop',
      labels: { 'berth.project': project, 'berth.deployment': first, 'berth.generation': '1' },
      host_port: 32_003,
      state: 'running',
    },
  ]);
  expect(await get(first)).toMatchObject({ waiting: null, health: { status: 'healthy' } });
  await expect(world.work(world.home, {})).rejects.toThrow('has no task');
}, 60_000);

test('somebody removes the container of a healthy version: it is created again on its node', async () => {
  const own = await createApi();
  try {
    const world = await createWorld(own);
    const list = async (containers: object[]): Promise<void> => {
      own.pass(11_000);
      await register(own, { hostname: 'node-1', role: 'deploy', containers });
    };
    const project = await createProject(own, {});
    const id = await world.live(project);
    const get = async () =>
      (await own.call('getDeployment', { params: { id } })).json as {
        status: string;
        rest: string | null;
        waiting: string | null;
        health: { status: string; detail: string | null };
        events: { message: string }[];
      };
    await list([]);
    expect(await get()).toMatchObject({
      status: 'running',
      health: {
        status: 'unhealthy',
        detail: 'its container is missing on its node; Berth creates it again',
      },
    });
    await expect(world.work(world.home, {})).rejects.toThrow('has no task');
    await list([]);
    expect((await get()).waiting).toBe(
      'its container does not exist any more on node-1; it is created again',
    );
    expect(await world.work(world.home, { host_port: 32_003, container_id: 'c3' })).toMatchObject({
      generation: 1,
    });
    expect(await own.stores.routes.all()).toMatchObject([{ deployment_id: id, host_port: 32_003 }]);
    expect(await world.work(world.home, {})).toMatchObject({ keep: { deployment_id: id } });
    const after = await get();
    expect(after).toMatchObject({
      status: 'running',
      waiting: null,
      health: { status: 'healthy' },
    });
    expect(after.events.map(({ message }) => message)).toContain(
      'its container does not exist any more; it is created again on node-1',
    );
  } finally {
    await own.close();
  }
}, 60_000);
