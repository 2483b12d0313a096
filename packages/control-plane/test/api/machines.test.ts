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
    containers: [],
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

test('a deployment gets its device, and another one waits for it', async () => {
  const own = await createApi();
  onTestFinished(() => own.close());
  const world = await createWorld(own);
  const machine = {
    hostname: 'node-1',
    role: 'deploy',
    memory_bytes: 1e9,
    devices: { [GPU]: ['0'] },
    containers: [],
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
}, 60_000);

test('while the old container is ending, a preview says the sentence of the deployment', async () => {
  const own = await createApi();
  onTestFinished(() => own.close());
  const world = await createWorld(own);
  await register(own, { hostname: 'node-1', role: 'deploy', memory_bytes: 1e9 });
  const project = await createProject(own, { memory_bytes: 400_000_000 });
  const built = async (): Promise<string> => {
    const id = await deploy(own, project);
    await tick(own, id);
    await world.built();
    return id;
  };
  const preview = async () =>
    (await own.call('placement', { query: { project_id: project } })).json as {
      winner: string | null;
      note?: string;
    };
  await world.started(await built());
  const second = await built();
  await tick(own, second);
  await world.work(world.home, { host_port: 32_002 });
  await own.driver.advance(second, {
    type: 'route_confirmed',
    host_ip: '10.0.0.7',
    host_port: 32_002,
  });
  const ends = 'waits for the room of the container of deployment 1 on node-1, which is ending';
  expect(await preview()).toMatchObject({ winner: world.home, note: ends });
  const third = await built();
  await tick(own, third);
  expect((await own.call('getDeployment', { params: { id: third } })).json).toMatchObject({
    status: 'built',
    waiting: ends,
  });
  await world.work(world.home, {});
  expect((await preview()).note).toBeUndefined();
}, 60_000);

test('without memory for two versions the old one stops first; with `rolling` set it is refused', async () => {
  const own = await createApi();
  onTestFinished(() => own.close());
  const world = await createWorld(own);
  await register(own, { hostname: 'node-1', role: 'deploy', memory_bytes: 1e9 });
  const project = await createProject(own, { memory_bytes: 600_000_000 });
  const built = async (): Promise<string> => {
    const id = await deploy(own, project);
    await tick(own, id);
    await world.built();
    return id;
  };
  const show = async (id: string) =>
    (await own.call('getDeployment', { params: { id } })).json as {
      status: string;
      error: { message: string } | null;
      events: { message: string }[];
    };
  const first = await built();
  expect(await world.started(first)).toMatchObject({ replace: 'rolling', memory_bytes: 6e8 });

  const second = await built();
  const preview = async () =>
    (await own.call('placement', { query: { project_id: project } })).json as {
      winner: string | null;
      note?: string;
    };
  const { winner, note } = await preview();
  expect(winner).toBe(world.home);
  expect(note).toBe(
    'stop-first: the old version stops before the new one starts, because node-1 has too little ' +
      'free memory for the memory limit of the project: 600000000 bytes needed, 400000000 bytes free',
  );
  await tick(own, second);
  const starting = await show(second);
  expect(starting.status).toBe('deploying');
  const says = starting.events.map((event) => event.message);
  const noRoom = says.indexOf(note ?? '');
  expect(noRoom).not.toBe(-1);
  expect(noRoom).toBeLessThan(says.findIndex((text) => text.startsWith('assigned to node-1')));
  expect(await world.work(world.home, { host_port: 32_002 })).toMatchObject({
    replace: 'recreate',
    replaces: first,
  });
  await own.driver.advance(second, {
    type: 'route_confirmed',
    host_ip: '10.0.0.7',
    host_port: 32_002,
  });
  // Until the old container is removed, its memory is not free for others.
  const { memory } = await own.stores.nodes.room();
  expect(memory.get(world.home)).toBe(1.2e9);
  await world.work(world.home, {});
  expect((await own.stores.nodes.room()).memory.get(world.home)).toBe(6e8);

  await own.call('patchProject', { params: { id: project }, body: { replace: 'rolling' } });
  expect(await preview()).toMatchObject({ winner: null });
  const third = await built();
  await tick(own, third);
  const refused = await show(third);
  expect(refused).toMatchObject({ status: 'failed', error: { code: 'no_room_for_two' } });
  expect(refused.error?.message).toContain('node-1 has too little free memory');
  expect((await show(second)).status).toBe('running');

  const free = await createProject(own, { name: 'free', domain_prefix: 'free' });
  const unlimited = await deploy(own, free);
  await tick(own, unlimited);
  await world.built();
  await world.started(unlimited);
  const { notes } = (await own.call('readyz', { as: null })).json as { notes: string[] };
  expect(notes).toContain(
    '1 deployment has no memory limit (memory_bytes): placement counts no memory for a container ' +
      'without one',
  );
}, 60_000);

test('with `rolling` set a deployment waits for the room of a container that is being removed', async () => {
  const own = await createApi();
  onTestFinished(() => own.close());
  const world = await createWorld(own);
  await register(own, { hostname: 'node-1', role: 'deploy', memory_bytes: 1.2e9 });
  const project = await createProject(own, { memory_bytes: 600_000_000, replace: 'rolling' });
  await world.live(project);

  const deployed = async (): Promise<string> => {
    const id = await deploy(own, project);
    await tick(own, id);
    await world.built();
    await tick(own, id);
    return id;
  };
  const second = await deployed();
  const at = { host_ip: '10.0.0.7', host_port: 32_002 };
  await world.work(world.home, at);
  await own.driver.advance(second, { type: 'route_confirmed', ...at });
  // The first container still drains, so two containers have all the memory.
  const third = await deployed();
  const show = async () => (await own.call('getDeployment', { params: { id: third } })).json;
  expect(await show()).toMatchObject({
    status: 'built',
    waiting: 'waits for the room of the container of deployment 1 on node-1, which is ending',
  });
  await world.work(world.home, {});
  await tick(own, third);
  expect(await show()).toMatchObject({ status: 'deploying', waiting: null });
}, 60_000);
