/**
 * Placement, prewarm, drain and cache of a node through the API. The expected numbers are computed
 * by hand.
 */
import { beforeEach, describe, expect, it, vi } from 'vitest';
import { datasetChanges } from '../../src/loops/dataset-changes.ts';
import { drains } from '../../src/loops/drains.ts';
import { leaseReaper } from '../../src/loops/lease-reaper.ts';
import { silentLogger } from '@berth/kit/log';
import { DomainError } from '../../src/domain/platform/errors.ts';
import { type Api, createApi, createProject, deploy, register, rulesOf, tick } from './harness.ts';
import { withVersions } from './with-versions.ts';

let api: Api;
beforeEach(async () => {
  api = await createApi();
});

const worker = (hostname: string, over: object = {}) =>
  register(api, { hostname, role: 'deploy', host_ip: `10.0.1.${hostname.length}`, ...over });
const cached = (
  dataset_id: string,
  version: number,
  bytes: number,
  last_used_at = '2026-11-01T00:00:00Z',
  pinned = false,
) => ({
  dataset_id,
  version,
  bytes,
  last_used_at,
  pinned,
});
const loopDeps = () => ({
  ...api.stores,
  ...api,
  now: () => Date.now(),
  log: silentLogger(),
});
const drainRound = () => drains(loopDeps())(new AbortController().signal);

/** Creates a running deployment on the node. A report names its image, as if it had been built. */
async function running(project: string, node: string, port = 32_000): Promise<string> {
  const id = await deploy(api, project);
  await tick(api, id);
  const [build] = (await api.stores.flow.facts(project)).tasks;
  await finish(build?.id ?? '', {
    status: 'completed',
    image_tag:
      `${(build?.payload as { image_repository?: string } | undefined)?.image_repository ?? ''}:` +
      'a'.repeat(40),
    image_digest: `sha256:${'b'.repeat(64)}`,
  });
  await goLive(project, id, node, port);
  return id;
}
async function goLive(project: string, id: string, node: string, port: number): Promise<void> {
  await tick(api, id);
  if ((await api.stores.deployments.get(id)).status === 'built') await tick(api, id);
  const task = (await api.stores.flow.facts(project)).tasks.find(
    (t) => t.deployment_id === id && t.kind === 'deploy',
  );
  expect(task?.node_id).toBe(node);
  await finish(task?.id ?? '', { status: 'completed', host_port: port });
  const route = (await api.stores.routes.all()).find((r) => r.deployment_id === id);
  await api.driver.advance(id, {
    type: 'route_confirmed',
    host_ip: route?.host_ip ?? '',
    host_port: port,
  });
  for (const t of (await api.stores.flow.facts(project)).tasks)
    await finish(t.id, { status: 'completed' });
}
async function finish(task: string, body: object): Promise<void> {
  const claim = await api.call('agentStart', { params: { id: task } });
  const done = await api.call('agentComplete', {
    params: { id: task },
    body,
    headers: { 'x-lease-token': String(claim.json['lease_token']) },
  });
  expect(done.status, done.text).toBe(200);
}
const node = async (id: string) =>
  (await api.call('getNode', { params: { id } })).json as never as {
    schedulable: boolean;
    copying: { name: string; version: number; status: string; error: { code: string } | null }[];
    drain: {
      moved: number;
      finished_at: string | null;
      left: { project: string; moving_to: string | null; problem: string | null }[];
    } | null;
  };

describe('GET /api/placement', () => {
  it('lists every node with the terms of its score or the reason against it, and changes nothing', async () => {
    const [one, two] = [
      await withVersions(api, 'one', [30_000_000, 40_000_000]),
      await withVersions(api, 'two', [20_000_000]),
    ];
    await register(api, { hostname: 'builder' });
    const a = await worker('a', {
      free_storage: 2e8,
      copy_rate: 4e6,
      cached: [cached(one, 2, 4e7)],
    });
    const b = await worker('bb', {
      free_storage: 4e8,
      cached: [cached(one, 1, 3e7), cached(two, 1, 2e7)],
    });
    const c = await worker('ccc', { free_storage: 1e7 });
    const project = await createProject(api, {
      datasets: [
        { dataset_id: one, mode: 'dependency' },
        { dataset_id: two, mode: 'dependency' },
      ],
    });
    const reply = await api.call('placement', { query: { project_id: project } });
    const rows = reply.json['items'] as Record<string, unknown>[];
    // a: 10 - 20 + 20; b: 10 - 40 + 40; c has too little room; a builder runs no deployments.
    expect(
      rows
        .filter((r) => r['eligible'])
        .map((r) => [
          r['node_id'],
          r['cached_dataset_count'],
          r['missing_bytes'],
          r['free_storage_bytes'],
          r['score'],
          r['estimated_seconds'],
        ]),
    ).toEqual([
      [a, 1, 20_000_000, 2e8, expect.closeTo(10), 5],
      [b, 1, 40_000_000, 4e8, expect.closeTo(10), null],
    ]);
    expect(rows.find((r) => r['node_id'] === c)).toMatchObject({
      eligible: false,
      reason: expect.stringContaining('60.0 MB missing, 10.0 MB free'),
    });
    expect(rows.find((r) => r['hostname'] === 'builder')).toMatchObject({
      eligible: false,
      reason: 'is a builder',
    });
    expect(reply.json['winner']).toBe(a);
    expect((await api.stores.flow.facts(project)).tasks).toEqual([]);
  });
});

describe('a project that mounts datasets', () => {
  const maps = (dataset_id: string, over: object = {}) => ({
    dataset_id,
    mode: 'dependency',
    ...over,
  });
  it('is refused if two datasets have the same mount path, or one is inside the other', async () => {
    const [one, two] = [await withVersions(api, 'one', [1]), await withVersions(api, 'two', [1])];
    const create = async (datasets: object[]) =>
      rulesOf(
        await api.call('createProject', {
          body: { name: 'x', git_url: 'https://git.example/x.git', domain_prefix: 'x', datasets },
        }),
      );
    expect(await create([maps(one, { mount_path: '/data/two' }), maps(two)])).toEqual([
      'datasets[1].mount_path:unique',
    ]);
    expect(await create([maps(one, { mount_path: '/data' }), maps(two)])).toEqual([
      'datasets[1].mount_path:nested',
    ]);
    expect(await create([maps(one), maps(one)])).toContain('datasets[1].dataset_id:unique');
    expect(await create([maps('nowhere')])).toEqual(['datasets[0].dataset_id:exists']);
    expect(await create([maps(one), maps(two)])).toEqual([]);
  });
  it.each(['dependency', 'readwrite'])(
    'with a %s it is deployed several times by a contract-only agent',
    async (mode) => {
      await register(api);
      const plain = await worker('plain', { agent_version: undefined });
      const one = await withVersions(api, 'one', [100]);
      const project = await createProject(api, { datasets: [{ dataset_id: one, mode }] });
      for (const port of [32_000, 32_001]) {
        const id = await deploy(api, project);
        await tick(api, id);
        const [build] = (await api.stores.flow.facts(project)).tasks;
        await finish(build?.id ?? '', {
          status: 'completed',
          image_tag: `registry.test:5000/shop:${'a'.repeat(40)}`,
        });
        await tick(api, id);
        const [task] = (await api.call('agentTasks', { query: { node_id: plain } }))
          .json as never as { id: string; payload: object }[];
        const row = {
          dataset_id: one,
          name: 'one',
          nfs_path: 'one',
          mode,
          mount_path: '/data/one',
          version: mode === 'readwrite' ? null : 1,
        };
        expect(task).toMatchObject({ kind: 'deploy', payload: { datasets: [row] } });
        // The agent sends no claim, no lease and no datasets.
        const done = await api.call('agentComplete', {
          params: { id: task?.id ?? '' },
          body: { status: 'completed', host_port: port },
        });
        expect(done.status, done.text).toBe(200);
        const route = (await api.stores.routes.all()).find((r) => r.deployment_id === id);
        await api.driver.advance(id, {
          type: 'route_confirmed',
          host_ip: route?.host_ip ?? '',
          host_port: port,
        });
        expect((await api.call('getDeployment', { params: { id } })).json).toMatchObject({
          status: 'running',
          datasets: [{ name: 'one', version: row.version }],
        });
      }
    },
  );
  it('its deployment shows the version that it uses, and that there is a newer one', async () => {
    await register(api);
    const here = await worker('here');
    const one = await withVersions(api, 'one', [100]);
    const project = await createProject(api, { datasets: [maps(one)] });
    const id = await running(project, here);
    const shown = async () => (await api.call('getDeployment', { params: { id } })).json;
    const pin = { dataset_id: one, name: 'one', mode: 'dependency', version: 1 };
    expect((await shown())['datasets']).toEqual([{ ...pin, current_version: 1, moved_on: false }]);
    await withVersions(api, 'one', [200], one);
    await api.driver.datasetChanged(one);
    await api.driver.datasetChanged(one);
    expect((await shown())['datasets']).toEqual([{ ...pin, current_version: 2, moved_on: true }]);
    const told = ((await shown())['events'] as { kind: string; message: string }[]).filter(
      (e) => e.kind === 'dataset',
    );
    expect(told.map((e) => e.message)).toEqual([
      'dataset one has a new version 2; this deployment uses version 1',
    ]);
  });
  it('is redeployed once for each new version if it asks for that', async () => {
    await register(api);
    const here = await worker('here');
    const one = await withVersions(api, 'one', [100]);
    const project = await createProject(api, {
      datasets: [maps(one)],
      on_dataset_change: 'redeploy',
    });
    const id = await running(project, here);
    await withVersions(api, 'one', [200], one);
    for (let i = 0; i < 3; i++) await api.driver.datasetChanged(one);
    const { items } = await api.stores.deployments.list(
      { project_id: project },
      { limit: 10, cursor: null },
    );
    expect(items.map((d) => [d.status, d.rollback_of])).toEqual([
      ['pending', id],
      ['running', null],
    ]);
  });
});

it('only datasets of which a deployment uses an older version are read', async () => {
  await register(api);
  const here = await worker('here');
  const [one, two] = [await withVersions(api, 'one', [100]), await withVersions(api, 'two', [100])];
  await withVersions(api, 'three', [100, 200]);
  const project = await createProject(api, {
    datasets: [one, two].map((dataset_id) => ({ dataset_id, mode: 'dependency' })),
  });
  const id = await running(project, here);
  await withVersions(api, 'two', [200], two);
  const asked = vi.spyOn(api.driver, 'datasetChanged');
  for (let i = 0; i < 2; i++) await datasetChanges(loopDeps())(new AbortController().signal);
  expect(asked.mock.calls).toEqual([[two]]);
  expect((await api.stores.deployments.get(id)).datasets).toMatchObject([
    { name: 'one' },
    { name: 'two', told: 2 },
  ]);
});

it('a project that cannot be decided about does not delay the others', async () => {
  await register(api);
  const here = await worker('here');
  const one = await withVersions(api, 'one', [100]);
  const datasets = [{ dataset_id: one, mode: 'dependency' }];
  const bad = await createProject(api, { datasets });
  await running(bad, here);
  const good = await createProject(api, { datasets, name: 'good', domain_prefix: 'good' });
  const id = await running(good, here, 32_001);
  await withVersions(api, 'one', [200], one);
  const facts = api.stores.flow.facts.bind(api.stores.flow);
  vi.spyOn(api.stores.flow, 'facts').mockImplementation((project) =>
    project === bad ? Promise.reject(new DomainError('busy')) : facts(project),
  );
  await expect(api.driver.datasetChanged(one)).rejects.toThrow();
  expect((await api.stores.deployments.get(id)).datasets).toMatchObject([{ version: 1, told: 2 }]);
});

// Another deployment of the project had to end first.
it('a redeployment that had to wait for another deployment starts when that one has ended', async () => {
  await register(api);
  const here = await worker('here');
  const one = await withVersions(api, 'one', [100]);
  const project = await createProject(api, {
    datasets: [{ dataset_id: one, mode: 'dependency' }],
    on_dataset_change: 'redeploy',
  });
  const id = await running(project, here);
  const other = await deploy(api, project);
  await withVersions(api, 'one', [200], one);
  const look = async () => {
    await datasetChanges(loopDeps())(new AbortController().signal);
    const { items } = await api.stores.deployments.list(
      { project_id: project },
      { limit: 10, cursor: null },
    );
    return items.map((d) => [d.status, d.rollback_of]);
  };
  expect(await look()).toEqual([
    ['pending', null],
    ['running', null],
  ]);
  await api.driver.advance(other, { type: 'cancel' });
  expect(await look()).toEqual([
    ['pending', id],
    ['cancelled', null],
    ['running', null],
  ]);
});

describe('prewarm', () => {
  const prewarm = (id: string, dataset_id: string) =>
    api.call('prewarmNode', { params: { id }, body: { dataset_id } });
  it('is a task of the node, shown until it ends', async () => {
    const [here, one] = [await worker('here'), await withVersions(api, 'one', [100])];
    expect((await prewarm(here, one)).json['copying']).toMatchObject([
      { name: 'one', version: 1, status: 'waiting', error: null },
    ]);
    await prewarm(here, one);
    const tasks = (await api.call('agentTasks', { query: { node_id: here } })).json as never as {
      id: string;
      kind: string;
      payload: object;
    }[];
    expect(tasks).toMatchObject([
      { kind: 'sync', payload: { dataset: { dataset_id: one, version: 1, bytes: 100 } } },
    ]);
    await finish(tasks[0]?.id ?? '', {
      status: 'failed',
      result: { error: { code: 'disk_full', message: 'no space left' } },
    });
    expect((await node(here)).copying).toMatchObject([
      { status: 'failed', error: { code: 'disk_full', message: 'no space left' } },
    ]);
  });
  it('is lost if its node does not claim it', async () => {
    const [here, one] = [await worker('here'), await withVersions(api, 'one', [100])];
    await prewarm(here, one);
    api.pass(api.limits.claimMs + 600_000);
    const later = { ...loopDeps(), now: () => Date.now() + api.limits.claimMs + 600_000 };
    const reap = leaseReaper({ ...later, limits: { ...api.limits, leaseMs: 0 } });
    await reap(new AbortController().signal);
    expect((await node(here)).copying).toMatchObject([
      { status: 'failed', error: { code: 'node_lost' } },
    ]);
  });
  it.each([
    ['a builder', async () => [await register(api), await withVersions(api, 'one', [1])], 409],
    [
      'a contract-only agent',
      async () => [
        await worker('plain', { agent_version: undefined }),
        await withVersions(api, 'one', [1]),
      ],
      409,
    ],
    ['an unknown dataset', async () => [await worker('here'), 'nowhere'], 422],
    [
      'a dataset without a version',
      async () => [await worker('here'), await withVersions(api, 'one', [])],
      422,
    ],
    ['an unknown node', async () => ['nowhere', await withVersions(api, 'one', [1])], 404],
  ] satisfies [string, () => Promise<string[]>, number][])(
    'is refused for %s',
    async (_, given, status) => {
      const [at = '', dataset = ''] = await given();
      expect((await prewarm(at, dataset)).status).toBe(status);
    },
  );
  it('is refused for a node that is offline', async () => {
    const [here, one] = [await worker('here'), await withVersions(api, 'one', [100])];
    api.pass(api.limits.offlineMs + 60_000);
    expect((await prewarm(here, one)).json['detail']).toContain('is offline');
  });
});

it('GET /api/nodes/:id/cache names the versions to evict, least recently used first, and never pinned ones', async () => {
  const here = await worker('here', {
    max_storage: 1000,
    free_storage: 100,
    cached: [
      cached('s1', 1, 300, '2026-11-03T00:00:00Z'),
      cached('s2', 1, 300, '2026-11-01T00:00:00Z'),
      cached('s3', 4, 300, '2026-10-01T00:00:00Z', true),
    ],
  });
  const room = async (bytes: number) =>
    (await api.call('cacheRoom', { params: { id: here }, query: { bytes } })).json;
  // 900 of 1000 bytes are used, which is the high watermark. 200 more exceed it. The low watermark
  // is 800.
  expect(await room(0)).toMatchObject({
    free_bytes: 100,
    evict: [],
    enough: true,
    pinned_bytes: 300,
  });
  expect(await room(200)).toMatchObject({
    evict: [{ dataset_id: 's2' }],
    freed_bytes: 300,
    enough: true,
  });
  expect(await room(300)).toMatchObject({
    evict: [{ dataset_id: 's2' }, { dataset_id: 's1' }],
    freed_bytes: 600,
    enough: true,
  });
  expect(await room(800)).toMatchObject({ freed_bytes: 600, enough: false });
  expect(
    (await api.call('nodeDisk', { params: { id: here }, query: { bytes: 200 } })).json,
  ).toMatchObject({
    disk: null,
    budget_bytes: 1000,
    free_bytes: 100,
    enough: true,
    kept_bytes: 300,
    evict: [
      {
        kind: 'dataset',
        name: 's2 v1',
        bytes: 300,
        why: 'no container and no kept release uses it; last used 2026-11-01T00:00:00Z',
      },
    ],
    volumes: [],
  });
});

// If another control plane created the dataset and the notification was lost, the copy must stay.
it('a registration names deleted datasets, and never a dataset that this process has not read yet', async () => {
  const old = await withVersions(api, 'old', [1]);
  const registered = async (...ids: string[]) =>
    (
      await api.call('agentRegister', {
        body: {
          hostname: 'here',
          role: 'deploy',
          host_ip: '10.0.1.4',
          max_storage: 1e9,
          cached: ids.map((id) => cached(id, 1, 1)),
        },
      })
    ).json['forget'];
  expect(await registered(old)).toBeUndefined();
  const fresh = await withVersions(api, 'fresh', [1]);
  expect(await registered(old, fresh)).toBeUndefined();
  const read = vi.spyOn(api.stores.datasets, 'ids');
  for (let i = 0; i < 3; i++) expect(await registered(old, fresh, 'gone')).toEqual(['gone']);
  // A deleted dataset never returns, so it is read only once.
  expect(read).toHaveBeenCalledTimes(1);
});

describe('drain', () => {
  const drain = (id: string) => api.call('drainNode', { params: { id } });
  it('moves the deployments of the node, shows its progress, and ends', async () => {
    await register(api);
    const here = await worker('here');
    const project = await createProject(api);
    const id = await running(project, here);
    const there = await worker('there2', { free_storage: 1 });
    expect((await drain(here)).json).toMatchObject({
      schedulable: false,
      drain: { moved: 0, finished_at: null, left: [{ project: 'shop', moving_to: null }] },
    });
    await drain(here);
    await drainRound();
    await drainRound();
    const { items } = await api.stores.deployments.list(
      { project_id: project },
      { limit: 10, cursor: null },
    );
    expect(items).toMatchObject([
      { status: 'pending', rollback_of: id, note: 'node here is drained' },
      { id, status: 'running' },
    ]);
    const next = items[0]?.id ?? '';
    expect((await node(here)).drain).toMatchObject({ left: [{ moving_to: next, problem: null }] });
    await goLive(project, next, there, 32_001);
    await drainRound();
    expect((await node(here)).drain).toMatchObject({
      moved: 1,
      finished_at: expect.any(String),
      left: [],
    });
    expect((await api.stores.deployments.get(next)).image_digest).toBe(
      (await api.stores.deployments.get(id)).image_digest,
    );
  });
  it('after three attempts a deployment that cannot be moved stays and serves, with the reason; uncordon ends the drain', async () => {
    await register(api);
    const here = await worker('here');
    const project = await createProject(api);
    const id = await running(project, here);
    await drain(here);
    for (let i = 0; i < 6; i++) {
      await drainRound();
      const open = (await api.stores.flow.facts(project)).live.find((d) => d.id !== id);
      if (open !== undefined) await api.driver.advance(open.id, { type: 'cancel' });
    }
    const { items } = await api.stores.deployments.list(
      { project_id: project },
      { limit: 10, cursor: null },
    );
    expect(items.map((d) => d.status)).toEqual(['cancelled', 'cancelled', 'cancelled', 'running']);
    expect((await node(here)).drain).toMatchObject({
      finished_at: null,
      left: [{ moving_to: null, problem: 'deployment 4 was cancelled' }],
    });
    const stopped = await api.call('uncordonNode', { params: { id: here } });
    expect(stopped.json).toMatchObject({ schedulable: true, drain: null });
    await drainRound();
    expect(
      (await api.stores.deployments.list({ project_id: project }, { limit: 10, cursor: null }))
        .items,
    ).toHaveLength(4);
  });
  it('shows the reason too if the move cannot be requested', async () => {
    await register(api);
    const here = await worker('here');
    await running(await createProject(api), here);
    await drain(here);
    vi.spyOn(api.driver, 'redeploy').mockRejectedValue(new DomainError('busy'));
    for (let i = 0; i < 5; i++) await drainRound();
    expect((await node(here)).drain).toMatchObject({
      left: [{ moving_to: null, problem: expect.stringMatching(/\S/) }],
    });
  });
  it('two control planes that drain at once move each deployment once', async () => {
    await register(api);
    const here = await worker('here');
    const project = await createProject(api);
    await running(project, here);
    await drain(here);
    await Promise.all([drainRound(), drainRound(), drainRound()]);
    expect(
      (await api.stores.deployments.list({ project_id: project }, { limit: 10, cursor: null }))
        .items,
    ).toHaveLength(2);
  });
});
