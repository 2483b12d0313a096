/** A database of the version before the deployment record: the information of its rows is kept. */
import { expect, test } from 'vitest';
import { emptyUrlOf, freshPath, NOW, open } from './fixtures.ts';
import { DEPLOYMENT_ROW, migrateBefore, PROJECT_ROW, type Raw, raw } from './raw.ts';

async function before(path: string, fill: (db: Raw) => Promise<void>): Promise<void> {
  await raw(await emptyUrlOf(path), async (db, capabilities) => {
    await migrateBefore('0007', db, capabilities);
    await fill(db);
  });
}

test('a deployment that was stopped first is still started again', async () => {
  const path = freshPath();
  const rows: [string, string, string | null, string | null][] = [
    ['asked', 'running', 'stopped first: deployment 9 asked for it', 'asked'],
    [
      'stopped',
      'running',
      'stopped first: it stands still until the newer version serves or has failed',
      'stopped',
    ],
    [
      'waits',
      'running',
      'stopped first, and not started again yet: away is still at work on it',
      'stopped',
    ],
    ['other', 'running', 'n1 could not retire: the engine is busy', null],
    ['silent', 'running', null, null],
    ['over', 'failed', 'stopped first: deployment 9 asked for it', null],
  ];
  await before(path, async (db) => {
    for (const [id, status, waiting] of rows) {
      // A project for each: at most one deployment of a project is running.
      await db
        .insertInto('projects')
        .values({ ...PROJECT_ROW, id: `p-${id}`, name: id, domain_prefix: id })
        .execute();
      await db
        .insertInto('deployments')
        .values({
          ...DEPLOYMENT_ROW,
          id,
          project_id: `p-${id}`,
          status,
          waiting,
          finished_at: NOW,
          settings: '{"branch":"main","datasets":[]}',
        })
        .execute();
    }
  });
  const stores = await open(path);
  for (const [id, , waiting, expected] of rows)
    expect(await stores.deployments.get(id)).toMatchObject({
      waiting,
      stopped_first: expected,
      branch: 'main',
      created_by: null,
      trigger: null,
      phases: null,
    });
  await stores.close();
});

test('a mount without a path keeps its present path', async () => {
  const path = freshPath();
  const dataset = (id: string, name: string) => ({
    id,
    name,
    nfs_path: id,
    status: 'ok',
    files: 0,
    bytes: 0,
    skipped: '{}',
    scan_full: 0,
    accept_loss: 0,
    next_scan_at: NOW,
    created_at: NOW,
    updated_at: NOW,
  });
  await before(path, async (db) => {
    await db
      .insertInto('datasets')
      .values([dataset('s1', 'renamed'), dataset('s2', 'rocks')])
      .execute();
    const uses = [
      { dataset_id: 's1', mode: 'dependency' },
      { dataset_id: 's2', mode: 'readwrite' },
      { dataset_id: 's3', mode: 'dependency', mount_path: '/own' },
    ];
    await db
      .insertInto('projects')
      .values({ ...PROJECT_ROW, datasets: JSON.stringify(uses) })
      .execute();
    await db
      .insertInto('deployments')
      .values({
        ...DEPLOYMENT_ROW,
        datasets: JSON.stringify([
          { dataset_id: 's1', name: 'maps', mode: 'dependency', version: 1 },
        ]),
      })
      .execute();
  });
  const stores = await open(path);
  expect((await stores.projects.get('p1')).datasets.map((use) => use.mount_path)).toEqual([
    '/data/maps',
    '/data/rocks',
    '/own',
  ]);
  await stores.close();
});
