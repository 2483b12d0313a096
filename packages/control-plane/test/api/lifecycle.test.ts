/**
 * Stop, start, restart and rollback without a body, with a builder and a node that act like agents.
 */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createWorld, type World } from './deployed.ts';
import { type Api, createApi, createProject } from './harness.ts';

let api: Api;
let world: World;
beforeAll(async () => {
  api = await createApi();
  world = await createWorld(api);
}, 120_000);
afterAll(() => api.close());

const of = (id: string) => ({ params: { id } });
const routesOf = async (name: string): Promise<unknown> => {
  const { json } = await api.call('traefikConfig', {});
  return (json as { http: { services?: Record<string, unknown> } }).http.services?.[name];
};

test('a stopped project has a page, keeps its release and starts again', async () => {
  const id = await createProject(api, { name: 'one', domain_prefix: 'one' });
  const { name } = (await api.call('getProject', of(id))).json as { name: string };
  const first = await world.live(id);
  expect((await api.call('startProject', of(id))).json['code']).toBe('wrong_state');

  const stopped = await api.call('stopProject', of(id));
  expect([stopped.status, stopped.json['stopped'], stopped.json['running_deployment_id']]).toEqual([
    202,
    true,
    first,
  ]);
  expect(await routesOf(name)).toEqual({ loadBalancer: { servers: [] } });
  expect((await api.call('stopProject', of(id))).status).toBe(202);
  const task = await world.work(world.home, {});
  expect(task['stop']).toEqual([{ deployment_id: first, reason: 'the project is stopped' }]);
  expect((await api.call('getDeployment', of(first))).json).toMatchObject({
    status: 'running',
    health: null,
  });
  expect((await api.call('restartProject', of(id))).json['code']).toBe('wrong_state');

  const started = await api.call('startProject', of(id));
  expect([started.status, started.json['trigger'], started.json['rollback_of']]).toEqual([
    201,
    'start',
    first,
  ]);
  expect((await api.call('startProject', of(id))).json['code']).toBe('wrong_state');
  expect((await api.call('getProject', of(id))).json['stopped']).toBe(true);
  await world.deployedAgain(String(started.json['id']));
  expect((await api.call('getProject', of(id))).json).toMatchObject({
    stopped: false,
    running_deployment_id: started.json['id'],
  });
  expect(await routesOf(name)).toEqual({
    loadBalancer: { servers: [{ url: 'http://10.0.0.7:32001' }] },
  });
  expect((await api.call('getDeployment', of(first))).json['status']).toBe('retired');
}, 120_000);

test('a stop cancels what is in progress, also a start; the project stays stopped', async () => {
  const id = await createProject(api, { name: 'two', domain_prefix: 'two' });
  await world.live(id);
  await api.call('stopProject', of(id));
  await world.work(world.home, {});
  const start = (await api.call('startProject', of(id))).json['id'];
  expect((await api.call('stopProject', of(id))).json['stopped']).toBe(true);
  expect((await api.call('getDeployment', of(String(start)))).json['status']).toBe('cancelled');
  expect((await api.call('getProject', of(id))).json['stopped']).toBe(true);
}, 120_000);

test('a restart deploys the running release; another deployment in progress refuses it', async () => {
  const id = await createProject(api, { name: 'three', domain_prefix: 'three' });
  expect((await api.call('restartProject', of(id))).json['code']).toBe('no_release');
  const first = await world.live(id);
  expect((await api.call('getDeployment', of(first))).json).toMatchObject({
    status: 'running',
    health: { status: 'healthy' },
  });
  const restart = await api.call('restartProject', of(id));
  expect([restart.status, restart.json['trigger'], restart.json['rollback_of']]).toEqual([
    201,
    'restart',
    first,
  ]);
  expect((await api.call('restartProject', of(id))).json['code']).toBe('wrong_state');
  await world.deployedAgain(String(restart.json['id']));
  // Health describes what runs: the container of a retired deployment is gone.
  expect((await api.call('getDeployment', of(first))).json).toMatchObject({
    status: 'retired',
    health: null,
  });
  // A rollback passes restarts by: they run the same release.
  expect((await api.call('rollback', of(id))).json['code']).toBe('no_release');
}, 120_000);

test('a restart runs the version that went live while the request was read', async () => {
  const id = await createProject(api, { name: 'five', domain_prefix: 'five' });
  await world.live(id);
  const { ran } = api.stores.deployments;
  let second = '';
  api.stores.deployments.ran = async (project) => {
    api.stores.deployments.ran = ran;
    const before = await ran(project);
    second = await world.live(id);
    return before;
  };
  const restart = await api.call('restartProject', of(id));
  expect([restart.status, restart.json['rollback_of']]).toEqual([201, second]);
}, 120_000);

test('rollbacks without a body go further and further back and never return', async () => {
  const id = await createProject(api, { name: 'four', domain_prefix: 'four' });
  const all = [await world.live(id), await world.live(id), await world.live(id)];
  for (const target of [all[1], all[0]]) {
    const { json } = await api.call('rollback', of(id));
    expect([json['trigger'], json['rollback_of']]).toEqual(['rollback', target]);
    await world.deployedAgain(String(json['id']));
  }
  expect((await api.call('rollback', of(id))).json['code']).toBe('no_release');
}, 120_000);
