/**
 * The record of a deployment: who requested it, what it was built from, and how long its phases
 * took.
 */
import { afterEach, beforeEach, expect, test } from 'vitest';
import { createWorld, type World } from './deployed.ts';
import { type Api, createApi, createProject, deploy, sha, tick } from './harness.ts';

let api: Api;
let world: World;
beforeEach(async () => {
  api = await createApi();
  world = await createWorld(api);
});
afterEach(() => api.close());

const get = async (id: string): Promise<Record<string, unknown>> =>
  (await api.call('getDeployment', { params: { id } })).json;
type Phase = { name: string; started_at: string; ended_at: string | null };
const phases = async (id: string): Promise<[string, number | null][]> =>
  ((await get(id))['phases'] as Phase[]).map((p) => [
    p.name,
    p.ended_at === null
      ? null
      : Math.round((Date.parse(p.ended_at) - Date.parse(p.started_at)) / 10_000) * 10,
  ]);
const MADE_FROM = { branch: 'main', commit_message: 'Sell more', commit_author: 'Ada' };

test('a deployment shows who requested it, how, and its commit; a rollback shows the commit of its release', async () => {
  const project = await createProject(api);
  const id = await deploy(api, project);
  expect(await get(id)).toMatchObject({
    created_by: { kind: 'user', name: 'developer@example.com' },
    trigger: 'api',
    branch: 'main',
    commit_message: null,
    commit_author: null,
  });
  await tick(api, id);
  await world.built({ commit: sha('c'), commit_message: 'Sell more', commit_author: 'Ada' });
  await world.started(id);
  expect(await get(id)).toMatchObject({ ...MADE_FROM, commit: sha('c') });

  const back = (
    await api.call('rollback', { params: { id: project }, body: { deployment_id: id } })
  ).json;
  expect(back).toMatchObject({
    ...MADE_FROM,
    created_by: { kind: 'user', name: 'developer@example.com' },
    trigger: 'rollback',
  });
  await world.deployedAgain(String(back['id']));

  const moved = api.driver.newId();
  await api.driver.redeploy(String(back['id']), {
    id: moved,
    note: 'node-1 is drained',
    trigger: 'drain',
  });
  expect(await get(moved)).toMatchObject({
    ...MADE_FROM,
    created_by: { kind: 'system', id: null, name: 'Berth' },
    trigger: 'drain',
  });

  const { items } = (await api.call('listDeployments', { query: { project_id: project } }))
    .json as { items: unknown[] };
  expect(items).toMatchObject([
    { trigger: 'drain' },
    { trigger: 'rollback' },
    { ...MADE_FROM, trigger: 'api', phases: [{}, {}, {}, {}, {}] },
  ]);
});

test('a token is shown with its owner', async () => {
  const project = await createProject(api);
  const token = (
    await api.call('createToken', {
      body: {
        name: 'ci',
        role: 'developer',
        expires_at: new Date(Date.now() + 86_400_000).toISOString(),
      },
      as: 'developer',
    })
  ).json;
  const headers = { authorization: `Bearer ${String(token['token'])}` };
  const made = await api.call('createDeployment', { params: { id: project }, headers });
  expect(made.json['created_by']).toEqual({
    kind: 'token',
    id: token['id'],
    name: 'ci (developer@example.com)',
  });
});

test('each phase begins when the one before ends', async () => {
  const project = await createProject(api);
  const id = await deploy(api, project);
  expect(await phases(id)).toEqual([['queue', null]]);
  api.pass(10_000);
  await tick(api, id);
  await world.built();
  api.pass(20_000);
  await tick(api, id);
  await world.work(world.home, { host_port: 32_001 });
  api.pass(30_000);
  expect(await phases(id)).toEqual([
    ['queue', 10],
    ['build', 0],
    ['place', 20],
    ['start', 0],
    ['route', null],
  ]);
  await api.driver.advance(id, { type: 'route_confirmed', host_ip: '10.0.0.7', host_port: 32_001 });
  expect((await phases(id)).at(-1)).toEqual(['route', 30]);
});

test('the end of a deployment ends its open phase', async () => {
  const project = await createProject(api);
  const id = await deploy(api, project);
  api.pass(10_000);
  await api.call('cancelDeployment', { params: { id } });
  expect(await phases(id)).toEqual([['queue', 10]]);
});
