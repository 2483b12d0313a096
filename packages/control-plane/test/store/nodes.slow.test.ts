import type { NodeRegister } from '@berth/wire/node';
import { expect, onTestFinished, test } from 'vitest';
import type { AllStores } from '../../src/store/open.ts';
import { openDatabase } from '../../src/store/engine/database.ts';
import { storesOn } from '../../src/store/open.ts';
import {
  codeOf,
  commit,
  deploymentIn,
  freshPath,
  manyTimes,
  nodeIn,
  NOW,
  open,
  planFor,
  projectIn,
  quiet,
  routeOf,
  type Rows,
  rowsOf,
  setColumn,
  taskOf,
  tasksIn,
  urlOf,
} from './fixtures.ts';

const container = (name: string) => ({
  name,
  labels: { 'berth.project': 'p' },
  host_port: 1,
  state: 'running',
});

test('a node with the same host and role keeps its id and what people set', async () => {
  const stores = await open();
  const contract = {
    hostname: 'h',
    role: 'deploy',
    host_ip: '10.0.0.1',
    max_storage: 1.5,
  } as const;
  const first = await stores.nodes.register(contract, NOW);
  expect(first).toEqual({
    before: null,
    node: {
      ...contract,
      id: expect.stringMatching(/^[0-9a-f]{24}$/),
      free_storage: null,
      max_builds: 1,
      agent_version: null,
      boot_id: null,
      arch: null,
      cpus: null,
      memory_bytes: null,
      labels: {},
      admin_labels: {},
      devices: {},
      engine: null,
      capabilities: null,
      disk: null,
      has_secret: false,
      doubled: null,
      schedulable: true,
      deleting_at: null,
      cached: [],
      copy_rate: null,
      drain: null,
      containers: [],
      earlier_nodes: [],
      observed_at: null,
      observed_since: null,
      last_seen_at: NOW,
      last_polled_at: null,
      created_at: NOW,
    },
  });
  await stores.nodes.setSchedulable(first.node.id, false);
  const cached = [{ dataset_id: 'x', version: 1, bytes: 5, last_used_at: '2026-01-01T00:00:00Z' }];
  const second = await stores.nodes.register(
    {
      ...contract,
      agent_version: '2',
      boot_id: 'b',
      max_builds: 4,
      free_storage: 9,
      cached,
      containers: [container('c')],
    },
    NOW + 1,
  );
  expect(second.before).toEqual({ ...first.node, schedulable: false });
  expect(second.node).toEqual({
    ...first.node,
    schedulable: false,
    agent_version: '2',
    boot_id: 'b',
    max_builds: 4,
    free_storage: 9,
    cached,
    containers: [container('c')],
    observed_at: NOW + 1,
    observed_since: NOW + 1,
    last_seen_at: NOW + 1,
  });
  // A missing list means "not checked", an empty list means "none".
  expect(
    (await stores.nodes.register({ ...contract, agent_version: '2' }, NOW + 2)).node,
  ).toMatchObject({
    containers: [container('c')],
    cached,
    free_storage: 9,
    observed_at: NOW + 1,
    observed_since: NOW + 1,
    last_seen_at: NOW + 2,
  });
  await stores.nodes.markDeleting(first.node.id, NOW + 3);
  expect(
    (await stores.nodes.register({ ...contract, agent_version: '2', containers: [] }, NOW + 4))
      .node,
  ).toMatchObject({
    containers: [],
    observed_at: NOW + 4,
    deleting_at: NOW + 3,
  });
  expect((await stores.nodes.register({ ...contract, role: 'builder' }, NOW)).node.id).not.toBe(
    first.node.id,
  );
});

test('a node stores what its agent reports; the disk is a mark, and an agent that never sends it has none', async () => {
  const path = freshPath();
  const stores = await open(path);
  const contract = {
    hostname: 'h',
    role: 'deploy',
    host_ip: '10.0.0.1',
    max_storage: 1.5,
  } as const;
  const engine = { ok: true, version: '26.1.5', error: null };
  const disk = { datasets: 5, images: null, build_cache: 3, other: 2, free: 90, total: 100 };
  const full = {
    ...contract,
    agent_version: '2',
    arch: 'arm64',
    engine,
    capabilities: ['node_secret'],
    disk,
  };
  expect((await stores.nodes.register(contract, NOW)).node).toMatchObject({
    arch: null,
    engine: null,
    capabilities: null,
    disk: null,
  });
  const said = { arch: 'arm64', engine, capabilities: ['node_secret'], disk };
  expect((await stores.nodes.register(full, NOW + 1)).node).toMatchObject(said);
  const moved = { ...disk, free: 80, other: 12 };
  const { node } = await stores.nodes.register({ ...full, disk: moved }, NOW + 2);
  expect(node.disk).toEqual(moved);
  expect(JSON.parse(String((await rowsOf(path, 'nodes'))[0]?.['disk']))).toEqual(disk);
  await stores.nodes.flush();
  expect(JSON.parse(String((await rowsOf(path, 'nodes'))[0]?.['disk']))).toEqual(moved);
  const broken = { ok: false, version: '26.1.5', error: 'does not answer' };
  const { disk: _looked, ...unlooked } = full;
  expect(
    (await stores.nodes.register({ ...unlooked, engine: broken }, NOW + 3)).node,
  ).toMatchObject({
    ...said,
    engine: broken,
    disk: moved,
  });
  expect((await stores.nodes.register(contract, NOW + 4)).node).toMatchObject({
    arch: null,
    engine: null,
    capabilities: null,
    disk: null,
  });
});

test('routes follow a host to its new address, and plans with the old one are stale', async () => {
  const stores = await open();
  const [moved, stays] = [
    await nodeIn(stores, 'moved', { role: 'deploy' }),
    await nodeIn(stores, 'stays', { role: 'deploy' }),
  ];
  const [a, b, c] = [
    await projectIn(stores, 'a'),
    await projectIn(stores, 'b'),
    await projectIn(stores, 'c'),
  ];
  for (const [project, node] of [
    [a, moved],
    [b, stays],
  ] as const)
    await commit(stores, project.id, { route: { set: routeOf(project, 'd', node.id) } });
  await deploymentIn(stores, c, 'c1', { status: 'deploying', node_id: moved.id });
  const before = await Promise.all([a, b, c].map((p) => stores.projects.get(p.id)));
  await nodeIn(stores, 'moved', { role: 'deploy', host_ip: '10.0.0.9' });
  expect((await stores.routes.all()).map((r) => [r.project_name, r.host_ip])).toEqual([
    ['a', '10.0.0.9'],
    ['b', '10.0.0.1'],
  ]);
  expect(await Promise.all(before.map((p) => stores.flow.commit(planFor(p))))).toEqual([
    'stale',
    'committed',
    'stale',
  ]);
});

test('a machine that takes over a node, as an admin decided, gets no requests for the first machine’s containers', async () => {
  const stores = await open();
  const seen = {
    name: 'svc-a',
    labels: { 'berth.project': 'p', 'berth.deployment': 'a' },
    host_port: 4000,
    state: 'running',
  };
  const machine = (host_ip: string) => ({
    role: 'deploy' as const,
    agent_version: '1',
    boot_id: host_ip,
    host_ip,
  });
  const node = await nodeIn(stores, 'n', { ...machine('10.0.0.1'), containers: [seen] });
  const project = await projectIn(stores, 'a');
  await deploymentIn(stores, project, 'a', {
    node_id: node.id,
    status: 'running',
    host_port: 4000,
  });
  await commit(stores, project.id, { route: { set: routeOf(project, 'a', node.id) } });
  const addresses = async () => (await stores.routes.all()).map((r) => r.host_ip);
  const [first] = await addresses();
  await stores.nodes.resetSecret(node.id, NOW);
  await nodeIn(stores, 'n', machine('10.0.0.9'), NOW + 200_000);
  expect(await addresses()).toEqual([first]);
  await nodeIn(stores, 'n', { ...machine('10.0.0.9'), containers: [] }, NOW + 201_000);
  expect(await addresses()).toEqual([first]);
  // The same machine, which got another address: its route follows when it has looked.
  await nodeIn(stores, 'n', { ...machine('10.0.0.9'), containers: [seen] }, NOW + 202_000);
  expect(await addresses()).toEqual(['10.0.0.9']);
});

test('a route moves to another address only with its container: another machine under the same name gets no requests', async () => {
  const stores = await open();
  const node = await nodeIn(stores, 'n', { role: 'deploy', containers: [] });
  const [here, gone] = [await projectIn(stores, 'here'), await projectIn(stores, 'gone')];
  for (const project of [here, gone])
    await commit(stores, project.id, {
      route: { set: routeOf(project, `d-${project.name}`, node.id) },
    });
  const seen = {
    name: 'svc-here-g1',
    labels: { 'berth.deployment': 'd-here' },
    host_port: 1,
    state: 'running',
  };
  await nodeIn(stores, 'n', { role: 'deploy', host_ip: '10.0.0.9', containers: [seen] });
  expect((await stores.routes.all()).map((r) => [r.project_name, r.host_ip])).toEqual([
    ['gone', '10.0.0.1'],
    ['here', '10.0.0.9'],
  ]);
});

test('nodes are listed by host name in stable pages, all by role; an unknown node is an error', async () => {
  const stores = await open();
  for (const hostname of ['b', 'd'])
    for (const role of ['deploy', 'builder'] as const) await nodeIn(stores, hostname, { role });
  const first = await stores.nodes.list({ limit: 3, cursor: null });
  expect(first.items.map((n) => [n.hostname, n.role])).toEqual([
    ['b', 'builder'],
    ['b', 'deploy'],
    ['d', 'builder'],
  ]);
  for (const hostname of ['a', 'c', 'e']) await nodeIn(stores, hostname);
  const second = await stores.nodes.list({ limit: 3, cursor: first.next });
  expect(second.items.map((n) => [n.hostname, n.role])).toEqual([
    ['d', 'deploy'],
    ['e', 'builder'],
  ]);
  expect(second.next).toBeNull();
  expect((await stores.nodes.all('deploy')).map((n) => n.hostname)).toEqual(['b', 'd']);
  expect(await stores.nodes.all()).toHaveLength(7);
  expect(await codeOf(stores.nodes.list({ limit: 1, cursor: 'e30' }))).toBe('validation');
  expect(await codeOf(stores.nodes.get('nobody'))).toBe('not_found');
  expect(await codeOf(stores.nodes.setSchedulable('nobody', true))).toBe('not_found');
  expect(await codeOf(stores.nodes.markDeleting('nobody', NOW))).toBe('not_found');
});

test('a drained node accepts no work, and a node that accepts work is not drained: the last request decides', async () => {
  const stores = await open();
  const { id } = await nodeIn(stores, 'h');
  const drain = { started_at: NOW, finished_at: null, moved: 0, tries: {} };
  expect(await stores.nodes.setDrain(id, drain, null)).toMatchObject({ schedulable: false, drain });
  expect(await stores.nodes.setSchedulable(id, true)).toMatchObject({
    schedulable: true,
    drain: null,
  });
  // An update by the cancelled drain comes too late.
  expect(await stores.nodes.setDrain(id, { ...drain, moved: 1 }, drain)).toBeNull();
  await stores.nodes.setDrain(id, drain, null);
  expect(await stores.nodes.setSchedulable(id, false)).toMatchObject({ schedulable: false, drain });
});

test('a deleted node is marked once and removed when it has no work left', async () => {
  const stores = await open();
  const project = await projectIn(stores);
  const node = await nodeIn(stores, 'h', { containers: [container('c')] });
  expect(await stores.nodes.removeIfGone(node.id, true)).toBe(false);
  const marked = await stores.nodes.markDeleting(node.id, NOW + 1);
  expect(marked.deleting_at).toBe(NOW + 1);
  expect(await stores.nodes.markDeleting(node.id, NOW + 2)).toEqual(marked);
  expect(await codeOf(stores.nodes.setSchedulable(node.id, true))).toBe('being_deleted');
  expect((await stores.nodes.listDeleting()).map((n) => n.id)).toEqual([node.id]);
  expect(await stores.nodes.removeIfGone(node.id, false)).toBe(false);
  await tasksIn(stores, project, taskOf(project, 't1', node.id));
  await nodeIn(stores, 'h', { containers: [] });
  expect(await stores.nodes.removeIfGone(node.id, false)).toBe(false);
  await commit(stores, project.id, { changeTasks: [{ id: 't1', attempt: 0, end: 'lost' }] });
  expect(await stores.nodes.removeIfGone(node.id, false)).toBe(true);
  expect(await stores.nodes.removeIfGone(node.id, false)).toBe(true);
  expect(await codeOf(stores.nodes.get(node.id))).toBe('not_found');
});

test('a forced deletion loses the tasks and forgets the containers', async () => {
  const stores = await open();
  const project = await projectIn(stores);
  const node = await nodeIn(stores, 'h', { containers: [container('c')] });
  await tasksIn(stores, project, taskOf(project, 't1', node.id));
  await stores.tasks.claim('t1', { token: 'l', expires_at: NOW + 1 }, NOW, 5);
  const before = await stores.projects.get(project.id);
  await stores.nodes.markDeleting(node.id, NOW);
  expect(await stores.nodes.removeIfGone(node.id, true)).toBe(true);
  expect(await stores.tasks.get('t1')).toMatchObject({
    status: 'lost',
    finished_at: NOW,
    lease_token: 'l',
    lease_expires_at: null,
  });
  expect(
    await stores.flow.commit(
      planFor(before, { changeTasks: [{ id: 't1', attempt: 1, end: 'completed' }] }),
    ),
  ).toBe('stale');
});

/**
 * Reads the file through a second connection, as another program or this one after a crash would.
 */
async function onDisk(): Promise<{
  stores: AllStores;
  row: (id: string) => Promise<Rows[number]>;
  rows: () => Promise<Rows>;
}> {
  const path = freshPath();
  const stores = await open(path);
  const rows = (): Promise<Rows> => rowsOf(path, 'nodes');
  return { stores, rows, row: async (id) => (await rows()).find((row) => row['id'] === id) ?? {} };
}
const SAME: NodeRegister = {
  hostname: 'h',
  role: 'deploy',
  host_ip: '10.0.0.1',
  max_storage: 9,
  agent_version: '1',
  containers: [container('c')],
};

test('a registration without news is visible at once and written later with all others', async () => {
  const { stores, row } = await onDisk();
  const { node } = await stores.nodes.register({ ...SAME, free_storage: 5 }, NOW);
  const again = await stores.nodes.register({ ...SAME, free_storage: 4 }, NOW + 30_000);
  await stores.tasks.openFor(node.id, NOW + 31_000);
  const newest = {
    last_seen_at: NOW + 30_000,
    observed_at: NOW + 30_000,
    free_storage: 4,
    last_polled_at: NOW + 31_000,
  };
  expect(again.before).toMatchObject({ last_seen_at: NOW, free_storage: 5 });
  expect(await stores.nodes.get(node.id)).toMatchObject(newest);
  expect((await stores.nodes.all())[0]).toMatchObject(newest);
  expect((await stores.nodes.list({ limit: 5, cursor: null })).items[0]).toMatchObject(newest);
  const project = await projectIn(stores);
  expect((await stores.flow.facts(project.id)).nodes[0]).toMatchObject(newest);
  expect(await row(node.id)).toMatchObject({
    last_seen_at: NOW,
    free_storage: 5,
    last_polled_at: null,
  });
  await stores.nodes.flush();
  expect(await row(node.id)).toMatchObject(newest);
});

test('a registration with any news is written at once', async () => {
  const { stores, row } = await onDisk();
  const { node } = await stores.nodes.register(SAME, NOW);
  const news = [
    { ...SAME, containers: [] },
    { ...SAME, containers: [{ ...container('c'), host_port: 2 }] },
    { ...SAME, host_ip: '10.0.0.2' },
    { ...SAME, agent_version: '2' },
    { ...SAME, boot_id: 'another' },
    { ...SAME, max_builds: 3 },
    {
      ...SAME,
      cached: [{ dataset_id: 'x', version: 1, bytes: 1, last_used_at: '2026-01-01T00:00:00Z' }],
    },
  ];
  for (const [i, said] of news.entries()) {
    await stores.nodes.register(said, NOW + 1 + i);
    expect(await row(node.id), JSON.stringify(said)).toMatchObject({ last_seen_at: NOW + 1 + i });
  }
  // The clock was set back: a time in the "future" must not make the node look alive.
  await stores.nodes.register(news.at(-1) ?? SAME, NOW - 3_600_000);
  expect(await row(node.id)).toMatchObject({ last_seen_at: NOW - 3_600_000 });
  expect(await stores.nodes.get(node.id)).toMatchObject({ last_seen_at: NOW - 3_600_000 });
});

test('settings that people changed meanwhile stay, and a removed node registers again', async () => {
  const { stores } = await onDisk();
  const { node } = await stores.nodes.register({ ...SAME, containers: [] }, NOW);
  await stores.nodes.setSchedulable(node.id, false);
  expect((await stores.nodes.register({ ...SAME, containers: [] }, NOW + 1)).node.schedulable).toBe(
    false,
  );
  await stores.nodes.markDeleting(node.id, NOW + 2);
  expect((await stores.nodes.register({ ...SAME, containers: [] }, NOW + 3)).node.deleting_at).toBe(
    NOW + 2,
  );
  expect(await stores.nodes.removeIfGone(node.id, false)).toBe(true);
  expect(await codeOf(stores.tasks.openFor(node.id, NOW + 4))).toBe('not_found');
  const back = await stores.nodes.register({ ...SAME, containers: [] }, NOW + 5);
  expect(back).toMatchObject({ before: null, node: { schedulable: true, deleting_at: null } });
  expect(back.node.id).not.toBe(node.id);
});

test('silent nodes and overdue tasks are judged by marks, even unwritten ones', async () => {
  const { stores } = await onDisk();
  const project = await projectIn(stores);
  const { node } = await stores.nodes.register({ ...SAME, containers: [] }, NOW);
  await deploymentIn(stores, project, 'd1', { status: 'running', node_id: node.id });
  expect(
    await stores.deployments.onSilentNodes({ before: NOW + 1, after: Number.MAX_SAFE_INTEGER }),
  ).toEqual(['d1']);
  await stores.nodes.register({ ...SAME, containers: [] }, NOW + 500_000);
  expect(
    await stores.deployments.onSilentNodes({
      before: NOW + 400_000,
      after: Number.MAX_SAFE_INTEGER,
    }),
  ).toEqual([]);
});

test('a control plane that was paused for long does not overwrite newer marks of another one', async () => {
  const path = freshPath();
  const stopped = await open(path);
  const { node } = await stopped.nodes.register(SAME, NOW);
  await stopped.nodes.register(SAME, NOW + 1_000);
  // Without the stores, as another control plane would: only one can open a SQLite file.
  await setColumn(path, 'nodes', 'last_seen_at', NOW + 90_000);
  await stopped.nodes.flush();
  expect((await rowsOf(path, 'nodes'))[0]).toMatchObject({
    id: node.id,
    last_seen_at: NOW + 90_000,
    observed_at: NOW + 1_000,
  });
});

test('1,000 marks are one write', async () => {
  // In memory: thousands of commits to a disk take long.
  const db = await openDatabase(await urlOf(':memory:'), quiet, () => NOW);
  onTestFinished(() => db.close());
  const { nodes } = storesOn(db, () => NOW);
  await manyTimes(1000, (i) => nodes.register({ ...SAME, hostname: `h${i}` }, NOW));
  await manyTimes(1000, (i) => nodes.register({ ...SAME, hostname: `h${i}` }, NOW + 1000));
  let statements = 0;
  db.onQuery(() => statements++);
  await nodes.flush();
  // The pragmas turn the wait for the disk off before the write, and on again after it.
  expect(statements).toBe(db.capabilities.engine === 'sqlite' ? 3 : 1);
  const seen = await db.kysely.selectFrom('nodes').select('last_seen_at').execute();
  expect(seen).toHaveLength(1000);
  expect(seen.filter((row) => row.last_seen_at !== NOW + 1000)).toEqual([]);
}, 60_000);
