import { expect, onTestFinished, test } from 'vitest';
import type { DeploymentRecord } from '../../src/domain/platform/records.ts';
import { openDatabase } from '../../src/store/engine/database.ts';
import { storesOn } from '../../src/store/open.ts';
import {
  codeOf,
  commit,
  deploymentIn,
  nodeIn,
  NOW,
  open,
  projectIn,
  quiet,
  routeOf,
  urlOf,
} from './fixtures.ts';

test('every field is read as it was written', async () => {
  const stores = await open();
  const project = await projectIn(stores, 'shop', { env: { K: 'v' } });
  const full: Partial<DeploymentRecord> = {
    status: 'failed',
    requested_commit: 'a'.repeat(40),
    note: 'n',
    rollback_of: 'd0',
    error: { code: 'node_lost', message: 'b1' },
    cancel_requested_at: NOW,
    commit: 'b'.repeat(40),
    image_tag: 't',
    image_digest: 'sha256:0',
    builder_id: 'b',
    node_id: 'n',
    container_id: 'c',
    host_port: 1,
    route_published_at: NOW,
    placement: { items: [], winner: 'n' },
    health: { status: 'unhealthy', since: NOW, detail: null, cause: 'image_health_check' },
    losses: [{ node_id: 'n', at: NOW }],
    waiting: 'w',
    waiting_reason: { kind: 'still_works', node: 'n' },
    finished_at: NOW,
  };
  const written = await deploymentIn(stores, project, 'd1', full);
  expect(await stores.deployments.get('d1')).toEqual(written);
  const bare = await deploymentIn(stores, project, 'd2');
  expect(await stores.deployments.get('d2')).toEqual(bare);
  expect(await stores.deployments.getMany(['d2', 'nobody', 'd1'])).toEqual([bare, written]);
  expect(await stores.deployments.getMany([])).toEqual([]);
  expect(await codeOf(stores.deployments.get('nobody'))).toBe('not_found');
  // Each field can be set to null again.
  const cleared = {
    error: null,
    placement: null,
    health: null,
    losses: [],
    waiting: null,
    waiting_reason: null,
    host_port: null,
  } satisfies Partial<DeploymentRecord>;
  await commit(stores, project.id, {
    changeDeployments: [{ id: 'd1', from: 'failed', set: cleared }],
  });
  expect(await stores.deployments.get('d1')).toEqual({ ...written, ...cleared });
});

test('the cause of a health is ignored after an older version of Berth wrote another health', async () => {
  const db = await openDatabase(await urlOf(':memory:'), quiet, () => NOW);
  onTestFinished(() => db.close());
  const stores = storesOn(db, () => NOW);
  const project = await projectIn(stores, 'p');
  await deploymentIn(stores, project, 'd1', {
    status: 'running',
    health: { status: 'unhealthy', since: 1, detail: 'a', cause: 'image_health_check' },
  });
  expect((await stores.deployments.get('d1')).health?.cause).toBe('image_health_check');
  const byOlderVersion = { health_since: 2, health_detail: 'b' };
  await db.kysely.updateTable('deployments').set(byOlderVersion).execute();
  expect((await stores.deployments.get('d1')).health).toEqual({
    status: 'unhealthy',
    since: 2,
    detail: 'b',
  });
});

test('deployments are listed newest first, by project and state, in pages that inserts do not disturb', async () => {
  const stores = await open();
  const [a, b] = [await projectIn(stores, 'a'), await projectIn(stores, 'b')];
  // Two have the same time: the id decides.
  for (const [id, at] of [
    ['d1', 1],
    ['d2', 2],
    ['d3', 2],
    ['d4', 3],
  ] as const)
    await deploymentIn(stores, a, id, {
      created_at: at,
      status: id === 'd2' ? 'failed' : 'cancelled',
    });
  await deploymentIn(stores, b, 'e1', { created_at: 2, status: 'failed' });
  const ids = async (
    ...args: Parameters<typeof stores.deployments.list>
  ): Promise<[string[], string | null]> => {
    const { items, next } = await stores.deployments.list(...args);
    return [items.map((d) => d.id), next];
  };
  const [first, cursor] = await ids({}, { limit: 2, cursor: null });
  expect(first).toEqual(['d4', 'e1']);
  await deploymentIn(stores, b, 'e2', { created_at: 9, status: 'failed' });
  const [second, cursor2] = await ids({}, { limit: 2, cursor });
  expect(second).toEqual(['d3', 'd2']);
  expect(await ids({}, { limit: 2, cursor: cursor2 })).toEqual([['d1'], null]);
  expect((await ids({ project_id: a.id }, { limit: 9, cursor: null }))[0]).toEqual([
    'd4',
    'd3',
    'd2',
    'd1',
  ]);
  expect((await ids({ status: 'failed' }, { limit: 9, cursor: null }))[0]).toEqual([
    'e2',
    'e1',
    'd2',
  ]);
  expect(
    (await ids({ status: 'failed', project_id: a.id }, { limit: 9, cursor: null }))[0],
  ).toEqual(['d2']);
  expect(
    await codeOf(
      stores.deployments.list(
        {},
        { limit: 1, cursor: Buffer.from('["a","b"]').toString('base64url') },
      ),
    ),
  ).toBe('validation');
});

test('deployments that need attention: the newest of a project if it failed, and running ones that are not healthy', async () => {
  const stores = await open();
  const health = (status: 'healthy' | 'unhealthy' | 'unknown') => ({
    status,
    since: NOW,
    detail: null,
  });
  const make = async (name: string, ...rows: Partial<DeploymentRecord>[]): Promise<void> => {
    const project = await projectIn(stores, name);
    for (const [index, row] of rows.entries())
      await deploymentIn(stores, project, `${name}-${index + 1}`, {
        generation: index + 1,
        ...row,
      });
  };
  await make('well', { status: 'failed' }, { status: 'running', health: health('healthy') });
  await make('broken', { status: 'running', health: health('healthy') }, { status: 'failed' });
  await make('sick', { status: 'failed' }, { status: 'running', health: health('unhealthy') });
  await make('silent', { status: 'running', health: health('unknown') });
  await make('not-seen', { status: 'running', health: null });
  await make('both', { status: 'running', health: health('unhealthy') }, { status: 'failed' });
  await make('busy', { status: 'failed' }, { status: 'building' });
  const found = async (filter: Parameters<typeof stores.deployments.list>[0]): Promise<string[]> =>
    (await stores.deployments.list(filter, { limit: 9, cursor: null })).items
      .map(({ id }) => id)
      .toSorted();
  expect(await found({ attention: true })).toEqual([
    'both-1',
    'both-2',
    'broken-2',
    'sick-2',
    'silent-1',
  ]);
  expect(await found({ attention: true, status: 'failed' })).toEqual(['both-2', 'broken-2']);
  expect(await found({ ids: ['well-2', 'busy-1', 'nobody'] })).toEqual(['busy-1', 'well-2']);
});

test('deployments that use a dataset, also for a reader who sees few projects', async () => {
  const stores = await open();
  const [a, b] = [await projectIn(stores, 'a'), await projectIn(stores, 'b')];
  const use = (dataset_id: string) => ({
    dataset_id,
    name: dataset_id,
    mode: 'dependency' as const,
    version: 3,
  });
  await deploymentIn(stores, a, 'a1', {
    status: 'running',
    datasets: [use('corpus'), use('maps')],
  });
  await deploymentIn(stores, b, 'b1', { status: 'running', datasets: [use('maps')] });
  await deploymentIn(stores, b, 'b2', {
    status: 'retired',
    generation: 2,
    datasets: [use('corpus')],
  });
  const found = async (
    filter: Parameters<typeof stores.deployments.list>[0],
    only?: string[],
  ): Promise<string[]> => {
    const access = only === undefined ? undefined : { userId: 'u', isAdmin: true, only };
    return (await stores.deployments.list(filter, { limit: 9, cursor: null }, access)).items
      .map(({ id }) => id)
      .toSorted();
  };
  expect(await found({ dataset_id: 'corpus' })).toEqual(['a1', 'b2']);
  expect(await found({ dataset_id: 'corpus', status: 'running' })).toEqual(['a1']);
  expect(await found({ dataset_id: 'maps' }, [b.id])).toEqual(['b1']);
  expect(await found({ dataset_id: 'map' })).toEqual([]);
});

test('newest first means the order of the requests, even after the clock was set back', async () => {
  const stores = await open();
  const [a, b] = [await projectIn(stores, 'a'), await projectIn(stores, 'b')];
  const request = (
    id: string,
    of: typeof a,
    generation: number,
    ordinal: number,
    created_at: number,
  ): Promise<unknown> =>
    deploymentIn(stores, of, id, { generation, ordinal, created_at, status: 'failed' });
  await request('a1', a, 1, 1, NOW);
  await request('b1', b, 1, 2, NOW + 1);
  await request('a2', a, 2, 3, NOW - 3_600_000);
  await request('b2', b, 2, 4, NOW - 3_599_999);
  const pages = async (
    filter: Parameters<typeof stores.deployments.list>[0],
  ): Promise<string[]> => {
    const seen: string[] = [];
    for (let cursor: string | null = null; ; ) {
      const { items, next }: Awaited<ReturnType<typeof stores.deployments.list>> =
        await stores.deployments.list(filter, {
          limit: 1,
          cursor,
        });
      seen.push(...items.map((d) => d.id));
      if (next === null) return seen;
      cursor = next;
    }
  };
  expect(await pages({})).toEqual(['b2', 'a2', 'b1', 'a1']);
  expect(await pages({ status: 'failed' })).toEqual(['b2', 'a2', 'b1', 'a1']);
  expect(await pages({ project_id: a.id })).toEqual(['a2', 'a1']);
  expect(await pages({ project_id: a.id, status: 'failed' })).toEqual(['a2', 'a1']);
});

test('the queries of the loops', async () => {
  const stores = await open();
  const old = await nodeIn(stores, 'old', { role: 'deploy', containers: [] }, NOW - 500);
  const fresh = await nodeIn(stores, 'fresh', { role: 'deploy', containers: [] }, NOW);
  const make = async (name: string, more: Partial<DeploymentRecord>): Promise<void> =>
    void (await deploymentIn(stores, await projectIn(stores, name), name, more));
  await make('waits', { status: 'pending', created_at: NOW + 2 });
  await make('builds', { status: 'building', created_at: NOW + 1 });
  await make('switches', {
    status: 'deploying',
    route_published_at: NOW,
    node_id: fresh.id,
    created_at: NOW + 3,
  });
  await make('starts', { status: 'deploying', node_id: fresh.id, created_at: NOW + 4 });
  await make('runs', { status: 'running', node_id: fresh.id, route_published_at: NOW });
  await make('silent', {
    status: 'running',
    node_id: old.id,
    health: { status: 'healthy', since: 1, detail: null },
  });
  await make('never-looked', { status: 'running', node_id: old.id, created_at: NOW + 1 });
  await make('known-silent', {
    status: 'running',
    node_id: old.id,
    health: { status: 'unknown', since: 1, detail: 'silent' },
  });
  await make('over', { status: 'retired', node_id: fresh.id, route_published_at: NOW });
  const switching = await stores.deployments.get('switches');
  const project = await stores.projects.get(switching.project_id);
  await commit(stores, project.id, { route: { set: routeOf(project, 'switches', fresh.id) } });

  expect((await stores.deployments.inProgress()).map((d) => [d.id, d.status])).toEqual([
    ['builds', 'building'],
    ['waits', 'pending'],
    ['switches', 'deploying'],
    ['starts', 'deploying'],
  ]);
  expect(await stores.deployments.awaitingRoute()).toEqual([
    { id: 'switches', route_published_at: NOW, health_path: null },
  ]);
  expect((await stores.deployments.servingOn(fresh.id)).map((d) => d.id)).toEqual([
    'runs',
    'switches',
  ]);
  expect(await stores.deployments.onSilentNodes({ before: NOW - 100, after: NOW })).toEqual([
    'silent',
    'never-looked',
  ]);
  expect(await stores.deployments.onSilentNodes({ before: NOW - 500, after: NOW })).toEqual([]);
});

test('lines of a story are in order, even at the same time', async () => {
  const stores = await open();
  const project = await projectIn(stores);
  for (const id of ['d1', 'd2']) await deploymentIn(stores, project, id, { status: 'cancelled' });
  const tell = (...messages: string[]): Promise<unknown> =>
    commit(stores, project.id, {
      storyLines: messages.map((message) => ({ deployment_id: 'd1', kind: 'k', message })),
    });
  await tell('one', 'two', 'three');
  await tell('four');
  const stories = await stores.deployments.events(['d2', 'd1']);
  expect([...stories.keys()]).toEqual(['d2', 'd1']);
  expect(stories.get('d1')).toEqual(
    ['one', 'two', 'three', 'four'].map((message) => ({ at: NOW, kind: 'k', message })),
  );
  expect(stories.get('d2')).toEqual([]);
  expect(await stores.deployments.events([])).toEqual(new Map());
});

test('deployments are counted by state; an empty state is left out', async () => {
  const stores = await open();
  const project = await projectIn(stores);
  expect(await stores.deployments.countByStatus()).toEqual(new Map());
  for (const [i, status] of (['failed', 'pending', 'failed'] as const).entries())
    await deploymentIn(stores, project, `d${i}`, { status });
  expect(await stores.deployments.countByStatus()).toEqual(
    new Map([
      ['failed', 2],
      ['pending', 1],
    ]),
  );
});
