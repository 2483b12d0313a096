/** Labels of nodes, what machines report, and what projects require, through the API. */
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { createWorld } from './deployed.ts';
import { type Api, createApi, createProject, deploy, register, rulesOf, tick } from './harness.ts';

const GPU = 'nvidia.com/gpu';
let api: Api;
let node: string;
beforeAll(async () => {
  api = await createApi();
  node = await register(api, {
    hostname: 'node-1',
    role: 'deploy',
    arch: 'amd64',
    cpus: 8,
    memory_bytes: 1e9,
    labels: { zone: 'a', disk: 'ssd' },
    devices: { [GPU]: ['0'] },
    capabilities: ['devices'],
  });
}, 60_000);
afterAll(() => api.close());

const patch = (labels: unknown, as: 'admin' | 'developer' = 'admin') =>
  api.call('patchNode', { params: { id: node }, body: { labels }, as });

test('a node shows its machine, and which labels an admin set', async () => {
  await patch({ zone: 'b' });
  const { json } = await api.call('getNode', { params: { id: 'node-1' }, as: 'viewer' });
  expect(json).toMatchObject({
    cpus: 8,
    memory_bytes: 1e9,
    labels: { zone: 'b', disk: 'ssd' },
    admin_labels: { zone: 'b' },
    devices: { [GPU]: ['0'] },
  });
  expect((await patch({ zone: null })).json).toMatchObject({
    labels: { zone: 'a', disk: 'ssd' },
    admin_labels: {},
  });
});

test('only admins label a node, and each bad label is named with its rule', async () => {
  expect((await patch({ zone: 'b' }, 'developer')).status).toBe(403);
  const reply = await patch({ 'a b': 'x', zone: 'x y', rack: 7 });
  expect(reply.status).toBe(422);
  expect(rulesOf(reply)).toContain('labels.rack:type');
  expect(rulesOf(await patch({ 'a b': 'x', zone: 'x y' }))).toEqual([
    'labels.a b:label_key',
    'labels.zone:label_value',
  ]);
  const { status } = await api.call('patchNode', {
    params: { id: 'none' },
    body: { labels: {} },
    as: 'admin',
  });
  expect(status).toBe(404);
});

test('bad values of a machine do not break a registration', async () => {
  const id = await register(api, {
    hostname: 'odd',
    role: 'deploy',
    cpus: 'many',
    memory_bytes: null,
    labels: ['zone'],
    devices: { [GPU]: 'all', x: [1] },
  });
  const { json } = await api.call('getNode', { params: { id } });
  expect(json).toMatchObject({ cpus: null, memory_bytes: null, labels: {}, devices: {} });
  await api.call('cordonNode', { params: { id }, as: 'admin' });
});

test('requires has rules, and placement shows what a node lacks', async () => {
  const project = await createProject(api, { name: 'needs', domain_prefix: 'needs' });
  const set = (requires: unknown) =>
    api.call('patchProject', { params: { id: project }, body: { requires } });
  expect((await set({ labels: { '-': 'a' } })).status).toBe(422);
  expect((await set({ devices: { gpu: 1 } })).status).toBe(422);
  expect((await set({ devices: { [GPU]: 0 } })).status).toBe(422);
  expect((await set({ gpus: 1 })).status).toBe(422);
  const requires = { labels: { zone: 'z' }, arch: 'amd64', devices: { [GPU]: 1 } };
  expect((await set(requires)).json).toMatchObject({ requires });
  const placed = await api.call('placement', { query: { project_id: project } });
  expect(placed.json['winner']).toBeNull();
  expect(JSON.stringify(placed.json)).toContain('has the label zone=a, but the project requires z');
  await set({ ...requires, labels: {} });
  const again = await api.call('placement', { query: { project_id: project } });
  expect(again.json['winner']).toBe(node);
});

test('a deployment gets its device, another one waits for it, and /readyz counts those without a limit', async () => {
  const own = await createApi();
  onTestFinished(() => own.close());
  const world = await createWorld(own);
  const machine = {
    hostname: 'node-1',
    role: 'deploy',
    memory_bytes: 1e9,
    devices: { [GPU]: ['0'] },
    capabilities: ['devices'],
  };
  await register(own, machine);
  const requires = { devices: { [GPU]: 1 } };
  const deployed = async (name: string): Promise<string> => {
    const project = await createProject(own, { name, domain_prefix: name, requires });
    const id = await deploy(own, project);
    await tick(own, id);
    await world.built();
    return id;
  };
  const payload = await world.started(await deployed('first'));
  expect(payload).toMatchObject({ devices: [`${GPU}=0`], replace: 'rolling' });
  const second = await deployed('second');
  await tick(own, second);
  const { json } = await own.call('getDeployment', { params: { id: second } });
  expect(json).toMatchObject({
    status: 'built',
    waiting: `node-1 has too few free devices ${GPU}`,
  });
  const { notes } = (await own.call('readyz', { as: null })).json as { notes: string[] };
  expect(notes).toContain(
    '1 deployment has no memory limit (memory_bytes): placement counts no memory for a container ' +
      'without one',
  );
}, 60_000);
