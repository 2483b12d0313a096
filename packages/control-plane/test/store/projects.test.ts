import { expect, test } from 'vitest';
import { DomainError } from '../../src/domain/platform/errors.ts';
import {
  codeOf,
  commit,
  deploymentIn,
  nodeIn,
  NOW,
  open,
  planFor,
  deploymentOf,
  projectIn,
  projectInput,
  routeOf,
  taskOf,
  tasksIn,
} from './fixtures.ts';

test('create fills in defaults and keeps given values', async () => {
  const stores = await open();
  const plain = await projectIn(stores, 'plain');
  expect(plain).toMatchObject({
    name: 'plain',
    branch: 'main',
    dockerfile_path: 'Dockerfile',
    container_port: 8080,
    auth_required: false,
    env: {},
    datasets: [],
    health_path: null,
    start_seconds: null,
    memory_bytes: null,
    cpus: null,
    drain_seconds: 5,
    stop_grace_seconds: 10,
    replace: 'rolling',
    flow_version: 0,
    last_generation: 0,
    deleting_at: null,
    created_at: NOW,
    updated_at: NOW,
  });
  expect(plain.id).toMatch(/^[A-Za-z0-9_-]+$/);
  const full = await projectIn(stores, 'full', {
    auth_required: true,
    env: { A: 'ü\u0000"' },
    cpus: 0.5,
    memory_bytes: 2 ** 40,
    replace: 'recreate',
    health_path: '/h',
    start_seconds: 3600,
  });
  expect(await stores.projects.get(full.id)).toEqual(full);
  expect(full).toMatchObject({
    auth_required: true,
    env: { A: 'ü\u0000"' },
    cpus: 0.5,
    memory_bytes: 2 ** 40,
    replace: 'recreate',
    health_path: '/h',
    start_seconds: 3600,
  });
});

test('names and prefixes are unique, and an unknown project is an error', async () => {
  const stores = await open();
  const shop = await projectIn(stores, 'shop');
  const other = await projectIn(stores, 'other');
  expect(await codeOf(projectIn(stores, 'shop', { domain_prefix: 'x' }))).toBe('name_taken');
  expect(await codeOf(projectIn(stores, 'x', { domain_prefix: 'shop' }))).toBe(
    'domain_prefix_taken',
  );
  expect(await codeOf(stores.projects.patch(other.id, { domain_prefix: 'shop' }, NOW))).toBe(
    'domain_prefix_taken',
  );
  expect(await codeOf(stores.projects.get('nobody'))).toBe('not_found');
  expect(await codeOf(stores.projects.patch('nobody', { branch: 'x' }, NOW))).toBe('not_found');
  expect(await codeOf(stores.projects.markDeleting('nobody', NOW))).toBe('not_found');
  const datasets = [{ dataset_id: 'd1', mode: 'dependency' as const }];
  for (const attempt of [
    projectIn(stores, 'y', { datasets }),
    stores.projects.patch(shop.id, { datasets }, NOW),
  ]) {
    const error = await attempt.catch((e: unknown) => e);
    expect(error).toBeInstanceOf(DomainError);
    expect((error as DomainError).fields).toMatchObject([
      { field: 'datasets[0].dataset_id', rule: 'exists' },
    ]);
  }
  expect(
    (await stores.projects.list({ limit: 10, cursor: null })).items.map((p) => p.name),
  ).toEqual(['other', 'shop']);
});

test('a patch changes the given fields and makes earlier plans stale', async () => {
  const stores = await open();
  const before = await projectIn(stores, 'shop', { env: { A: '1' }, auth_required: true });
  const after = await stores.projects.patch(
    before.id,
    { branch: 'next', domain_prefix: 'store' },
    NOW + 5,
  );
  expect(after).toEqual({
    ...before,
    branch: 'next',
    domain_prefix: 'store',
    updated_at: NOW + 5,
    flow_version: 1,
  });
  expect(
    await stores.flow.commit(planFor(before, { createDeployment: deploymentOf(before, 'd1') })),
  ).toBe('stale');
  expect(
    await stores.projects.patch(
      before.id,
      { auth_required: false, env: {}, domain_prefix: 'store' },
      NOW,
    ),
  ).toMatchObject({
    auth_required: false,
    env: {},
  });
});

test('a prefix that a project gave up stays taken while it is or may be served', async () => {
  const stores = await open();
  const shop = await projectIn(stores, 'shop');
  await deploymentIn(stores, shop, 'd1', { status: 'running' });
  await commit(stores, shop.id, { route: { set: routeOf(shop, 'd1', 'n1') } });
  await stores.projects.patch(shop.id, { domain_prefix: 'store' }, NOW);
  expect(await codeOf(projectIn(stores, 'new', { domain_prefix: 'shop' }))).toBe(
    'domain_prefix_taken',
  );
  // The project's own prefix is no obstacle.
  await stores.projects.patch(shop.id, { domain_prefix: 'shop' }, NOW);
  await stores.projects.patch(shop.id, { domain_prefix: 'store' }, NOW);
  await commit(stores, shop.id, { route: { remove: { project_id: shop.id } } });
  expect(await codeOf(projectIn(stores, 'new', { domain_prefix: 'shop' }))).toBe(
    'domain_prefix_taken',
  );
  await commit(stores, shop.id, {
    changeDeployments: [{ id: 'd1', from: 'running', set: { status: 'retired' } }],
  });
  expect(await codeOf(projectIn(stores, 'new', { domain_prefix: 'shop' }))).toBe(
    'domain_prefix_taken',
  );
  const after = NOW + 7 * 86_400_000;
  expect(
    (await stores.projects.create(projectInput('new', { domain_prefix: 'shop' }), after))
      .domain_prefix,
  ).toBe('shop');
  // A rollback to the old settings is refused completely.
  const now = await stores.projects.get(shop.id);
  expect(
    await codeOf(
      stores.flow.commit(
        planFor(now, { createDeployment: deploymentOf({ ...now, domain_prefix: 'shop' }, 'd2') }),
      ),
    ),
  ).toBe('domain_prefix_taken');
  expect((await stores.projects.get(shop.id)).flow_version).toBe(now.flow_version);
});

test('a deleted project is marked once, refuses patches, and is removed with everything that belongs to it', async () => {
  const stores = await open();
  const shop = await projectIn(stores);
  const node = await nodeIn(stores, 'w1', {
    role: 'deploy',
    agent_version: '1',
    containers: [
      { name: 'c', labels: { 'berth.project': shop.id }, host_port: null, state: 'running' },
    ],
  });
  await deploymentIn(stores, shop, 'd1');
  await tasksIn(stores, shop, taskOf(shop, 't1', node.id, { deployment_id: 'd1' }));
  await commit(stores, shop.id, {
    route: { set: routeOf(shop, 'd1', node.id) },
    storyLines: [{ deployment_id: 'd1', kind: 'k', message: 'm' }],
  });
  await stores.logs.append(
    'd1',
    { task_id: 't1', attempt: 1, first: 0 },
    [{ stream: 'stdout', text: 'hi' }],
    NOW,
  );

  expect(await stores.projects.removeIfGone(shop.id)).toBe(false);
  const marked = await stores.projects.markDeleting(shop.id, NOW + 1);
  expect(marked.deleting_at).toBe(NOW + 1);
  expect(await stores.projects.markDeleting(shop.id, NOW + 9)).toEqual(marked);
  expect((await stores.projects.listDeleting()).map((p) => p.id)).toEqual([shop.id]);
  expect(await codeOf(stores.projects.patch(shop.id, { branch: 'x' }, NOW))).toBe('being_deleted');

  expect(await stores.projects.removeIfGone(shop.id)).toBe(false);
  await commit(stores, shop.id, { changeTasks: [{ id: 't1', attempt: 0, end: 'cancelled' }] });
  expect(await stores.projects.removeIfGone(shop.id)).toBe(false);
  expect(await stores.logs.read('d1', 0, 10)).toHaveLength(1);
  await nodeIn(stores, 'w1', {
    role: 'deploy',
    agent_version: '1',
    containers: [
      { name: 'c', labels: { 'berth.project': 'another' }, host_port: null, state: 'running' },
    ],
  });
  expect(await stores.projects.removeIfGone(shop.id)).toBe(true);
  expect(await stores.projects.removeIfGone(shop.id)).toBe(true);

  expect(await codeOf(stores.projects.get(shop.id))).toBe('not_found');
  expect(await codeOf(stores.deployments.get('d1'))).toBe('not_found');
  expect(await codeOf(stores.tasks.get('t1'))).toBe('not_found');
  expect((await stores.deployments.events(['d1'])).get('d1')).toEqual([]);
  expect(await stores.logs.read('d1', 0, 10)).toEqual([]);
  expect(await stores.routes.all()).toEqual([]);
  expect(await projectIn(stores, 'shop', { domain_prefix: 'again' })).toMatchObject({
    name: 'shop',
  });
});

test('a list of containers made before a deploy task ended does not prove that no container is left', async () => {
  const stores = await open();
  const shop = await projectIn(stores);
  const node = await nodeIn(stores, 'w1', { role: 'deploy', agent_version: '1' });
  await deploymentIn(stores, shop, 'd1');
  await tasksIn(stores, shop, taskOf(shop, 't1', node.id, { kind: 'deploy', deployment_id: 'd1' }));
  await stores.tasks.claim('t1', { token: 'l', expires_at: NOW + 10 }, NOW, 5);
  await commit(stores, shop.id, {
    now: NOW + 20,
    changeTasks: [{ id: 't1', attempt: 1, end: 'lost' }],
  });
  await stores.projects.markDeleting(shop.id, NOW + 30);

  const tells = async (at: number, last_answer_at: number): Promise<boolean> => {
    const answered = new Date(last_answer_at).toISOString();
    const body = {
      hostname: 'w1',
      role: 'deploy' as const,
      host_ip: '10.0.0.1',
      max_storage: 1,
      agent_version: '1',
    };
    await stores.nodes.register({ ...body, containers: [], last_answer_at: answered }, at);
    await stores.nodes.flush();
    return stores.projects.removeIfGone(shop.id);
  };
  // Its agent has not listed its containers yet.
  expect(await stores.projects.removeIfGone(shop.id)).toBe(false);
  expect(await tells(NOW + 40, NOW + 5)).toBe(false);
  expect(await tells(NOW + 50, NOW + 40)).toBe(true);
});

test('an idle project that is not marked is not removed', async () => {
  const stores = await open();
  const { id } = await projectIn(stores);
  expect(await stores.projects.removeIfGone(id)).toBe(false);
  expect(await stores.projects.get(id)).toMatchObject({ id });
});

test('projects are found by a part of their name, domain prefix or git address, in any case, and no character is special', async () => {
  const stores = await open();
  for (const [name, git_url] of [
    ['shop', 'https://git.example/Team/web_shop.git'],
    ['wiki', 'https://git.example/team/webxshop.git'],
    ['old', String.raw`https://git.example/100%/a\b.git`],
  ] as const)
    await stores.projects.create(
      { ...projectInput(name), domain_prefix: `${name}-at`, git_url },
      NOW,
    );
  const found = async (
    filter: NonNullable<Parameters<typeof stores.projects.list>[1]>,
  ): Promise<string[]> =>
    (await stores.projects.list({ limit: 9, cursor: null }, filter)).items.map(({ name }) => name);
  expect(await found({ find: 'SHO' })).toEqual(['shop', 'wiki']);
  expect(await found({ find: 'team/WEB_shop' })).toEqual(['shop']);
  expect(await found({ find: 'wiki-at' })).toEqual(['wiki']);
  expect(await found({ find: '100%/' })).toEqual(['old']);
  expect(await found({ find: String.raw`a\b` })).toEqual(['old']);
  expect(await found({ find: 'none' })).toEqual([]);
  const all = (await stores.projects.list({ limit: 9, cursor: null })).items;
  expect(await found({ ids: all.slice(1).map(({ id }) => id) })).toEqual(['shop', 'wiki']);
  expect(await found({ ids: [] })).toEqual([]);
});

test('pages stay correct while rows change, and an invalid cursor is refused', async () => {
  const stores = await open();
  const ids = new Map<string, string>();
  for (const name of ['a', 'c', 'e', 'g', 'i']) ids.set(name, (await projectIn(stores, name)).id);
  const first = await stores.projects.list({ limit: 2, cursor: null });
  expect(first.items.map((p) => p.name)).toEqual(['a', 'c']);
  for (const name of ['b', 'd']) await stores.projects.create(projectInput(name), NOW);
  await stores.projects.markDeleting(ids.get('c') ?? '', NOW);
  await stores.projects.removeIfGone(ids.get('c') ?? '');
  const second = await stores.projects.list({ limit: 3, cursor: first.next });
  expect(second.items.map((p) => p.name)).toEqual(['d', 'e', 'g']);
  const third = await stores.projects.list({ limit: 3, cursor: second.next });
  expect(third).toMatchObject({ next: null, items: [{ name: 'i' }] });
  for (const cursor of [
    'x',
    '',
    'bnVsbA',
    Buffer.from('[1]').toString('base64url'),
    Buffer.from('["a","b"]').toString('base64url'),
  ]) {
    expect(await codeOf(stores.projects.list({ limit: 2, cursor }))).toBe('validation');
  }
});

test('runningDeployments returns the running deployment', async () => {
  const stores = await open();
  const [a, b] = [await projectIn(stores, 'a'), await projectIn(stores, 'b')];
  await deploymentIn(stores, a, 'a1', { status: 'retired' });
  await deploymentIn(stores, a, 'a2', { status: 'running' });
  await deploymentIn(stores, b, 'b1', { status: 'building' });
  expect(await stores.projects.runningDeployments([a.id, b.id, 'nobody'])).toEqual(
    new Map([[a.id, 'a2']]),
  );
  expect(await stores.projects.runningDeployments([])).toEqual(new Map());
});
