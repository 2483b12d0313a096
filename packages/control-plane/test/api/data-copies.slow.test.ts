/**
 * `data_copies` of a project through the API: the loop, what the agents of the nodes get, and what
 * people see. The agents are played by the test.
 */
import { silentLogger } from '@berth/kit/log';
import { type DataCopies, DATASET_PINS, type DatasetPins } from '@berth/wire/data-copies';
import { beforeEach, expect, it } from 'vitest';
import { createCacheIndex } from '../../src/domain/nodes/cache-index.ts';
import { dataCopies } from '../../src/loops/data-copies.ts';
import { createWorld, type World } from './deployed.ts';
import { type Api, createApi, createProject, register } from './harness.ts';
import { withVersions } from './with-versions.ts';

let api: Api;
let world: World;
let genomes: string;
let project: string;
const BYTES = 40_000_000;

const cachedAt = (...versions: number[]) =>
  versions.map((version) => ({
    dataset_id: genomes,
    version,
    bytes: BYTES,
    last_used_at: '2026-11-01T00:00:00Z',
  }));
const berthAgent = { agent_version: '0.2.0', capabilities: [DATASET_PINS] };
const node = (hostname: string, over: object = {}) =>
  register(api, {
    hostname,
    role: 'deploy',
    host_ip: `10.0.1.${hostname.at(-1)}`,
    free_storage: 1e9,
    ...berthAgent,
    ...over,
  });
const round = () =>
  dataCopies({
    ...api.stores,
    ...api,
    cacheIndex: createCacheIndex(),
    now: () => Date.now(),
    log: silentLogger(),
  })(new AbortController().signal);
const copies = async () =>
  (await api.call('projectDataCopies', { params: { id: project } })).json as unknown as DataCopies;
const tasksOf = async (id: string) =>
  (await api.call('agentTasks', { query: { node_id: id } })).json as unknown as {
    kind: string;
    payload: { background?: boolean; dataset: { version: number } };
  }[];
const patch = (body: object) => api.call('patchProject', { params: { id: project }, body });

beforeEach(async () => {
  api = await createApi();
  world = await createWorld(api);
  genomes = await withVersions(api, 'genomes', [BYTES]);
  await register(api, { hostname: 'node-1', role: 'deploy', free_storage: 9e9, ...berthAgent });
  project = await createProject(api, {
    datasets: [{ dataset_id: genomes, mode: 'dependency' }],
    data_copies: 2,
  });
  await world.live(project);
  await register(api, {
    hostname: 'node-1',
    role: 'deploy',
    free_storage: 9e9,
    cached: cachedAt(1),
    ...berthAgent,
  });
});

it('takes 1 to 5, and takes effect at once', async () => {
  for (const data_copies of [0, 6, 1.5, 'two', null]) {
    const refused = await patch({ data_copies });
    expect(refused.status, String(data_copies)).toBe(422);
    expect(refused.json['errors']).toEqual([
      expect.objectContaining({ field: 'data_copies', rule: expect.any(String) }),
    ]);
  }
  expect((await patch({ data_copies: 5 })).json['data_copies']).toBe(5);
  const deployment = await api.call('getDeployment', {
    params: { id: String((await patch({ data_copies: 3 })).json['running_deployment_id']) },
  });
  expect(deployment.json['undeployed_settings'] ?? []).not.toContain('data_copies');
});

it('a second node gets the pinned version in the background, and keeps it', async () => {
  const second = await node('node-2');
  await round();
  const [copy, ...others] = await tasksOf(second);
  expect(others).toEqual([]);
  expect(copy).toMatchObject({
    kind: 'sync',
    payload: { background: true, dataset: { dataset_id: genomes, version: 1 } },
  });
  expect(await tasksOf(world.home)).toEqual([]);
  expect(await copies()).toMatchObject({
    wanted: 2,
    have: 1,
    versions: [{ name: 'genomes', version: 1, bytes: BYTES }],
    nodes: [
      { node: 'node-1', state: 'serving', missing: [] },
      { node: 'node-2', state: 'copying', missing: ['genomes v1'] },
    ],
    why: 'the copy on node-2 is not complete',
  });
  const disk = (await api.call('nodeDisk', { params: { id: second } })).json;
  expect(disk['copies']).toEqual([
    {
      dataset_id: genomes,
      name: 'genomes',
      version: 1,
      project: expect.any(String),
      bytes: null,
      why: expect.stringMatching(/^copy for project /),
    },
  ]);
  // Repeated passes change nothing.
  const before = await api.stores.dataCopies.pins();
  await round();
  await round();
  expect(await api.stores.dataCopies.pins()).toEqual(before);
  expect(await tasksOf(second)).toHaveLength(1);

  await world.work(second, { datasets: [{ dataset_id: genomes, version: 1 }] });
  await node('node-2', { cached: cachedAt(1) });
  await round();
  expect(await tasksOf(second)).toEqual([]);
  expect(await copies()).toMatchObject({ have: 2, why: null });
});

it('an agent gets its pins once, and again when they changed; other agents get none', async () => {
  const second = await node('node-2');
  await round();
  const answer = async (over: object) =>
    (
      await api.call('agentRegister', {
        body: {
          hostname: 'node-2',
          role: 'deploy',
          host_ip: '10.0.1.2',
          max_storage: 1e12,
          free_storage: 1e9,
          ...berthAgent,
          ...over,
        },
      })
    ).json as { id: string; dataset_pins?: DatasetPins };
  expect(await answer({})).not.toHaveProperty('dataset_pins');
  const first = await answer({ dataset_pins_etag: '' });
  expect(first.id).toBe(second);
  expect(first.dataset_pins?.items).toEqual([{ dataset_id: genomes, version: 1 }]);
  const etag = first.dataset_pins?.etag;
  expect(await answer({ dataset_pins_etag: etag })).not.toHaveProperty('dataset_pins');

  await patch({ data_copies: 1 });
  await round();
  expect((await answer({ dataset_pins_etag: etag })).dataset_pins?.items).toEqual([]);
  expect(await api.stores.dataCopies.pins()).toEqual([]);
  expect((await api.call('nodeDisk', { params: { id: second } })).json['copies']).toEqual([]);
});

it('contract-only agents and agents of an earlier version are not chosen', async () => {
  const plain = await register(api, { hostname: 'node-2', role: 'deploy', host_ip: '10.0.1.2' });
  const earlier = await node('node-3', { agent_version: '0.1.0', capabilities: ['volumes'] });
  await round();
  expect(await tasksOf(plain)).toEqual([]);
  expect(await tasksOf(earlier)).toEqual([]);
  expect(await copies()).toMatchObject({
    have: 1,
    why: expect.stringContaining('node-2 its agent cannot keep copies of datasets for projects'),
  });
});

it('a new version is copied when a deployment uses it, and the old one is released', async () => {
  const second = await node('node-2', { cached: cachedAt(1) });
  await round();
  expect(await copies()).toMatchObject({ have: 2 });
  await withVersions(api, 'genomes', [BYTES], genomes);
  await round();
  // The running deployment still uses version 1.
  expect(await tasksOf(second)).toEqual([]);
  expect(await copies()).toMatchObject({ have: 2, versions: [{ version: 1, bytes: null }] });

  await world.live(project);
  await register(api, {
    hostname: 'node-1',
    role: 'deploy',
    free_storage: 9e9,
    cached: cachedAt(1, 2),
    ...berthAgent,
  });
  await round();
  expect((await tasksOf(second)).map(({ payload }) => payload.dataset.version)).toEqual([2]);
  expect((await api.stores.dataCopies.onNode(second)).map((pin) => pin.version)).toEqual([2]);
  await world.work(second, {});
  await node('node-2', { cached: cachedAt(1, 2) });
  expect(await copies()).toMatchObject({ have: 2, why: null });
});

it('a cordoned node is replaced', async () => {
  const second = await node('node-2', { cached: cachedAt(1) });
  const third = await node('node-3');
  await round();
  expect(await tasksOf(third)).toEqual([]);
  await api.call('cordonNode', { params: { id: second } });
  await round();
  expect((await tasksOf(third)).map(({ kind }) => kind)).toEqual(['sync']);
  expect(await copies()).toMatchObject({
    have: 1,
    nodes: [
      { node: 'node-1', state: 'serving' },
      { node: 'node-3', state: 'copying' },
      { node: 'node-2', state: 'leaving', detail: 'is cordoned' },
    ],
  });
  await world.work(third, {});
  await node('node-3', { cached: cachedAt(1) });
  await round();
  const kept = (await api.stores.dataCopies.pins()).map((pin) => pin.node_id);
  expect(kept.toSorted()).toEqual([world.home, third].toSorted());
  expect(await copies()).toMatchObject({ have: 2 });
});

it('a stopped project keeps no copies', async () => {
  await node('node-2', { cached: cachedAt(1) });
  await round();
  expect(await api.stores.dataCopies.pins()).toHaveLength(2);
  expect((await api.call('stopProject', { params: { id: project } })).status).toBe(202);
  await round();
  expect(await api.stores.dataCopies.pins()).toEqual([]);
  expect(await copies()).toMatchObject({ have: 0, why: 'no deployment is running' });
});

it('a project without a running deployment has no copies', async () => {
  const { id } = (
    await api.call('createProject', {
      body: {
        name: 'idle',
        git_url: 'https://git.example/idle.git',
        domain_prefix: 'idle',
        data_copies: 3,
      },
    })
  ).json as { id: string };
  const answer = await api.call('projectDataCopies', { params: { id } });
  expect(answer.json).toEqual({
    wanted: 3,
    have: 0,
    versions: [],
    nodes: [],
    why: 'no deployment is running',
  });
});
