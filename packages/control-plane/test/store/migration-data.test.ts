/** A database of the version before datasets: after the upgrade all rows are there and work. */
import { sql } from 'kysely';
import { expect, test } from 'vitest';
import type { Capabilities } from '../../src/store/engine/capabilities.ts';
import { emptyUrlOf, freshPath, NOW, open, rowsOf, taskOf, tasksIn, urlOf } from './fixtures.ts';
import { DEPLOYMENT_ROW, migrateBefore, PROJECT_ROW, type Raw, raw } from './raw.ts';

async function indexesOf(db: Raw, { engine }: Capabilities): Promise<string[]> {
  const text =
    engine === 'sqlite'
      ? "select name from sqlite_master where type = 'index' and tbl_name = 'tasks' and sql is " +
        'not null'
      : `select indexname as name from pg_indexes where tablename = 'tasks'`;
  return (await sql.raw<{ name: string }>(text).execute(db)).rows.map((row) => row.name).sort();
}

const node = {
  id: 'n1',
  hostname: 'h',
  role: 'deploy',
  host_ip: '10.0.0.1',
  max_storage: 1.5,
  max_builds: 1,
  schedulable: 0,
  cached: '[]',
  containers: '[]',
  last_seen_at: NOW,
  created_at: NOW,
};
const task = (id: string, more: object = {}) => ({
  id,
  kind: 'deploy',
  status: 'pending',
  project_id: 'p1',
  deployment_id: 'd1',
  node_id: 'n1',
  attempt: 0,
  payload: '{"domain_prefix":"shop"}',
  queue_deadline_at: NOW + 1,
  wall_deadline_at: NOW + 2,
  created_at: NOW,
  ...more,
});

test('no row is lost, and numbers of deleted rows are not used again', async () => {
  const path = freshPath();
  let before: Record<string, unknown>[] = [];
  let indexes: string[] = [];
  await raw(await emptyUrlOf(path), async (db, capabilities) => {
    await migrateBefore('0004', db, capabilities);
    await db.insertInto('projects').values(PROJECT_ROW).execute();
    await db.insertInto('deployments').values(DEPLOYMENT_ROW).execute();
    await db.insertInto('nodes').values(node).execute();
    const ended = {
      status: 'completed',
      finished_at: NOW,
      attempt: 2,
      lease_token: 't',
      report: '{"status":"completed"}',
      started_at: NOW,
    };
    await db.insertInto('tasks').values(task('t1', ended)).execute();
    await db
      .insertInto('tasks')
      .values(
        task('t2', { status: 'running', lease_token: 'u', lease_expires_at: NOW + 9, attempt: 1 }),
      )
      .execute();
    await db.insertInto('tasks').values(task('t3')).execute();
    await db.deleteFrom('tasks').where('id', '=', 't3').execute();
    before = await db.selectFrom('tasks').selectAll().orderBy('seq').execute();
    indexes = await indexesOf(db, capabilities);
  });
  expect(before.map((row) => row['id'])).toEqual(['t1', 't2']);

  const stores = await open(path);
  const after = await rowsOf(path, 'tasks');
  expect(after).toEqual(before.map((row) => ({ ...row, progress: null })));
  const { project: shop, live, tasks } = await stores.flow.facts('p1');
  expect(shop).toMatchObject({ name: 'shop', flow_version: 7, on_dataset_change: 'tell' });
  expect(live).toMatchObject([
    { id: 'd1', status: 'running', datasets: null, settings: { on_dataset_change: 'tell' } },
  ]);
  expect(tasks).toMatchObject([{ id: 't2', status: 'running', lease_token: 'u' }]);
  expect(await stores.nodes.get('n1')).toMatchObject({
    schedulable: false,
    copy_rate: null,
    drain: null,
  });

  // The number of the deleted task is not used again.
  await tasksIn(stores, shop, taskOf(shop, 't4', 'n1', { deployment_id: 'd1' }));
  expect((await rowsOf(path, 'tasks')).map((row) => row['seq'])).toEqual([1, 2, 4]);
  await stores.close();

  await raw(await urlOf(path), async (db, capabilities) => {
    expect(await indexesOf(db, capabilities)).toEqual(
      [...indexes, 'tasks_clean', 'tasks_ended_work', 'tasks_sync', 'tasks_unreported'].sort(),
    );
    // The rules of the table still hold: an open task has no end, and a project's tasks are deleted
    // with it.
    const ended = db
      .updateTable('tasks')
      .set({ status: 'completed' })
      .where('id', '=', 't2')
      .execute();
    await expect(ended).rejects.toThrow(/tasks_open_unfinished/);
    await db.deleteFrom('projects').where('id', '=', 'p1').execute();
    expect(await db.selectFrom('tasks').select('id').execute()).toEqual([]);
  });
});

test('the prefixes of projects get claims: sessions of a project that never moved stay valid, and left prefixes are kept', async () => {
  const path = freshPath();
  await raw(await emptyUrlOf(path), async (db, capabilities) => {
    await migrateBefore('0039', db, capabilities);
    const project = (id: string, domain_prefix: string) => ({
      ...PROJECT_ROW,
      id,
      name: id,
      domain_prefix,
    });
    const deployment = (id: string, project_id: string, domain_prefix: string) => ({
      ...DEPLOYMENT_ROW,
      id,
      project_id,
      domain_prefix,
    });
    await db
      .insertInto('projects')
      .values([project('p1', 'stayed'), project('p2', 'moved')])
      .execute();
    await db
      .insertInto('deployments')
      .values([
        { ...deployment('d1', 'p1', 'stayed'), status: 'running' },
        { ...deployment('d2', 'p2', 'before'), status: 'retired' },
        { ...deployment('d3', 'p2', 'typo'), status: 'failed', generation: 2 },
      ])
      .execute();
  });
  const stores = await open(path);
  const claims = (await rowsOf(path, 'prefix_claims')).map((row) => [
    row['prefix'],
    row['id'],
    row['project_id'],
    row['released_at'] === null,
  ]);
  expect(claims.toSorted((a, b) => String(a[0]).localeCompare(String(b[0])))).toEqual([
    ['before', 'left-p2', 'p2', false],
    ['moved', 'moved-p2', 'p2', true],
    ['stayed', 'first', 'p1', true],
  ]);
  expect((await stores.policy.read(NOW)).projects.map(({ claims: all }) => all)).toEqual([
    [{ prefix: 'stayed', claim: 'first' }],
    [
      { prefix: 'before', claim: 'left-p2' },
      { prefix: 'moved', claim: 'moved-p2' },
    ],
  ]);
});

test('containers that a contract-only agent started before the upgrade are listed, and missing images are looked for again', async () => {
  const path = freshPath();
  await raw(await emptyUrlOf(path), async (db, capabilities) => {
    await migrateBefore('0041', db, capabilities);
    await db.insertInto('projects').values(PROJECT_ROW).execute();
    await db
      .insertInto('nodes')
      .values([
        { ...node, schedulable: 1 },
        { ...node, id: 'n2', hostname: 'berth', schedulable: 1, agent_version: '1' },
      ])
      .execute();
    const ended = { ...DEPLOYMENT_ROW, status: 'retired', image_tag: 'r:5000/shop:1' };
    const clean = {
      state: 'done',
      holds_builds: 0,
      images: 0,
      images_left: 0,
      requested_at: NOW,
      started_at: NOW + 1,
    };
    await db
      .insertInto('clean_ups')
      .values({ id: 'c', ...clean, missing: 1, finished_at: NOW + 2 })
      .execute();
    await db
      .insertInto('deployments')
      .values([
        {
          ...ended,
          node_id: 'n1',
          domain_prefix: 'old',
          image_digest: 'sha256:1',
          image_removed_at: NOW + 2,
        },
        {
          ...ended,
          id: 'd2',
          generation: 2,
          node_id: 'n2',
          domain_prefix: 'old',
          image_digest: 'sha256:2',
          image_removed_at: NOW + 1,
        },
        { ...ended, id: 'd3', generation: 3, status: 'running', node_id: 'n1' },
      ])
      .execute();
  });
  const stores = await open(path);
  expect(await stores.unmanaged.left({ nodes: ['n1', 'n2'] })).toMatchObject([
    { node_id: 'n1', container: 'svc-old', project: 'shop', deployment_id: 'd1', labelled: false },
  ]);
  const missing = (await rowsOf(path, 'deployments')).map((row) => row['image_missing']);
  expect(missing).toEqual([1, null, null]);
});

test('volumes that a node reported before the upgrade are missing when it reports without them; deletions in progress end', async () => {
  const path = freshPath();
  await raw(await emptyUrlOf(path), async (db, capabilities) => {
    await migrateBefore('0043', db, capabilities);
    const copy = {
      project_id: 'p1',
      project: 'shop',
      node_id: 'n1',
      hostname: 'h',
      names: '["data"]',
      created_at: NOW,
      changed_at: NOW,
    };
    await db
      .insertInto('volume_copies')
      .values([
        { ...copy, id: 'v1', state: 'kept', bytes: 5 },
        { ...copy, id: 'v2', state: 'deleting', bytes: 5 },
        { ...copy, id: 'v3', state: 'kept', bytes: null, names: '[]' },
      ])
      .execute();
  });
  const stores = await open(path);
  await stores.volumes.report({ id: 'n1', hostname: 'h' }, [], NOW + 1, ['v2']);
  expect(
    (await stores.volumes.onNode('n1')).map(({ id, missing_since }) => [id, missing_since]),
  ).toEqual([['v1', NOW + 1]]);
});

test('a project that was stopped before the upgrade counts as stopped by a person, also at count 0 later', async () => {
  const path = freshPath();
  const zero = [{ name: 'web', count: 0 }];
  const rest = (id: string, more: object) => ({
    ...{ ...PROJECT_ROW, id, name: id, domain_prefix: id },
    ...{ stopped_at: NOW, processes: JSON.stringify([{ name: 'web', count: 1 }]) },
    ...more,
  });
  await raw(await emptyUrlOf(path), async (db, capabilities) => {
    await migrateBefore('0073', db, capabilities);
    await db
      .insertInto('projects')
      .values([
        rest('stopped', {}),
        rest('zero', { processes: JSON.stringify(zero) }),
        rest('runs', { stopped_at: null }),
      ])
      .execute();
  });
  const stores = await open(path);
  const byPerson = async () => {
    const projects = await stores.projects.getMany(['stopped', 'zero', 'runs']);
    return Object.fromEntries(projects.map((p) => [p.id, p.stopped_by_person]));
  };
  expect(await byPerson()).toEqual({ stopped: true, zero: false, runs: false });
  await stores.projects.patch('stopped', { processes: zero }, NOW);
  await stores.projects.patch('zero', { processes: [{ name: 'web', count: 2 }] }, NOW);
  expect(await byPerson()).toEqual({ stopped: true, zero: false, runs: false });
});
