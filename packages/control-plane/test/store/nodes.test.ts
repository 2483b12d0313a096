import { expect, test } from 'vitest';
import { codeOf, commit, deploymentIn, nodeIn, NOW, open, planFor, projectIn, routeOf, taskOf, tasksIn } from './fixtures.ts';

const container = (name: string) => ({ name, labels: { 'berth.project': 'p' }, host_port: 1, state: 'running' });

test('the same host and role keep their id and what people said', async () => {
  const stores = await open();
  const contract = { hostname: 'h', role: 'deploy', host_ip: '10.0.0.1', max_storage: 1.5 } as const;
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
      schedulable: true,
      deleting_at: null,
      cached: [],
      containers: [],
      observed_at: null,
      last_seen_at: NOW,
      last_polled_at: null,
      created_at: NOW,
    },
  });
  await stores.nodes.setSchedulable(first.node.id, false);
  const cached = [{ dataset_id: 'x', version: 1, bytes: 5, last_used_at: '2026-01-01T00:00:00Z' }];
  const second = await stores.nodes.register(
    { ...contract, agent_version: '2', boot_id: 'b', max_builds: 4, free_storage: 9, cached, containers: [container('c')] },
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
    last_seen_at: NOW + 1,
  });
  // Left out is "not looked at", an empty list is "there are none".
  expect((await stores.nodes.register({ ...contract, agent_version: '2' }, NOW + 2)).node).toMatchObject({
    containers: [container('c')],
    cached,
    free_storage: 9,
    observed_at: NOW + 1,
    last_seen_at: NOW + 2,
  });
  await stores.nodes.markDeleting(first.node.id, NOW + 3);
  expect((await stores.nodes.register({ ...contract, agent_version: '2', containers: [] }, NOW + 4)).node).toMatchObject({
    containers: [],
    observed_at: NOW + 4,
    deleting_at: NOW + 3,
  });
  expect((await stores.nodes.register({ ...contract, role: 'builder' }, NOW)).node.id).not.toBe(first.node.id);
});

test('routes follow a host to its new address, and plans made with the old one are stale', async () => {
  const stores = await open();
  const [moved, stays] = [await nodeIn(stores, 'moved', { role: 'deploy' }), await nodeIn(stores, 'stays', { role: 'deploy' })];
  const [a, b, c] = [await projectIn(stores, 'a'), await projectIn(stores, 'b'), await projectIn(stores, 'c')];
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
  expect(await Promise.all(before.map((p) => stores.flow.commit(planFor(p))))).toEqual(['stale', 'committed', 'stale']);
});

test('lists by host name in stable pages, all by role, and unknown ones are said to be', async () => {
  const stores = await open();
  for (const hostname of ['b', 'd']) for (const role of ['deploy', 'builder'] as const) await nodeIn(stores, hostname, { role });
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

test('deletion: marked once, gone when nothing is left', async () => {
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
  await commit(stores, project.id, { tasks: [{ id: 't1', attempt: 0, end: 'lost' }] });
  expect(await stores.nodes.removeIfGone(node.id, false)).toBe(true);
  expect(await stores.nodes.removeIfGone(node.id, false)).toBe(true);
  expect(await codeOf(stores.nodes.get(node.id))).toBe('not_found');
});

test('by force its tasks are lost and its containers forgotten', async () => {
  const stores = await open();
  const project = await projectIn(stores);
  const node = await nodeIn(stores, 'h', { containers: [container('c')] });
  await tasksIn(stores, project, taskOf(project, 't1', node.id));
  await stores.tasks.claim('t1', { token: 'l', expires_at: NOW + 1 }, NOW, 5);
  const before = await stores.projects.get(project.id);
  await stores.nodes.markDeleting(node.id, NOW);
  expect(await stores.nodes.removeIfGone(node.id, true)).toBe(true);
  expect(await stores.tasks.get('t1')).toMatchObject({ status: 'lost', finished_at: NOW, lease_token: 'l', lease_expires_at: null });
  expect(await stores.flow.commit(planFor(before, { tasks: [{ id: 't1', attempt: 1, end: 'completed' }] }))).toBe('stale');
});
