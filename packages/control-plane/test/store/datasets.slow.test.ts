import { expect, test } from 'vitest';
import { datasetIn, scanned } from './datasets-in.ts';
import {
  codeOf,
  deploymentIn,
  nodeIn,
  NOW,
  open,
  projectIn,
  rowsOf,
  freshPath,
} from './fixtures.ts';

test('a dataset is stored as given, its name is unique, and lists are sorted by name', async () => {
  const stores = await open();
  const b = await datasetIn(stores, 'b');
  expect(b).toEqual({
    id: expect.stringMatching(/^[0-9a-f]{24}$/),
    name: 'b',
    nfs_path: 'data/b',
    status: 'new',
    problem: null,
    version: null,
    manifest_digest: null,
    files: 0,
    bytes: 0,
    skipped: { count: 0, first: [] },
    share: null,
    scan_requested_at: NOW,
    scan_full: false,
    accept_loss: false,
    scanning_by: null,
    scanning_until: null,
    last_scanned_at: null,
    next_scan_at: NOW,
    deleting_at: null,
    created_at: NOW,
    updated_at: NOW,
  });
  expect(await stores.datasets.get(b.id)).toEqual(b);
  expect(await codeOf(datasetIn(stores, 'b'))).toBe('dataset_name_taken');
  const a = await datasetIn(stores, 'a');
  expect(await codeOf(stores.datasets.patch(a.id, { name: 'b' }, NOW))).toBe('dataset_name_taken');
  const first = await stores.datasets.list({ limit: 1, cursor: null });
  const second = await stores.datasets.list({ limit: 1, cursor: first.next });
  expect([...first.items, ...second.items].map((d) => d.name)).toEqual(['a', 'b']);
  expect(second.next).toBeNull();
  expect(await codeOf(stores.datasets.get('nobody'))).toBe('not_found');
  expect(await codeOf(stores.datasets.patch('nobody', { name: 'x' }, NOW))).toBe('not_found');
});

test('a new folder requests a scan, a new name does not', async () => {
  const stores = await open();
  const { id } = await datasetIn(stores);
  await scanned(stores, { a: '1' }, NOW);
  expect(await stores.datasets.patch(id, { name: 'other' }, NOW + 1)).toMatchObject({
    name: 'other',
    scan_requested_at: null,
  });
  expect(await stores.datasets.claimDue('t', NOW + 1, NOW + 2)).toBeNull();
  expect(await stores.datasets.patch(id, { nfs_path: 'data/photos' }, NOW + 2)).toMatchObject({
    scan_requested_at: null,
  });
  expect(await stores.datasets.patch(id, { nfs_path: 'data/moved' }, NOW + 3)).toMatchObject({
    nfs_path: 'data/moved',
    version: 1,
  });
  expect((await stores.datasets.claimDue('t', NOW + 3, NOW + 4))?.dataset.id).toBe(id);
});

test('a loss accepted for one folder is not accepted for another', async () => {
  const stores = await open();
  const { id } = await datasetIn(stores);
  await scanned(stores, { a: '1' }, NOW);
  await stores.datasets.requestScan(id, { full: true, acceptLoss: true }, NOW + 1);
  await stores.datasets.patch(id, { nfs_path: 'data/moved' }, NOW + 2);
  expect((await stores.datasets.claimDue('t', NOW + 3, NOW + 4))?.dataset).toMatchObject({
    scan_full: true,
    accept_loss: false,
  });
});

test('a dataset in use is not deleted, and the error names its users', async () => {
  const stores = await open();
  const { id } = await datasetIn(stores);
  const project = await projectIn(stores, 'shop', {
    datasets: [{ dataset_id: id, mode: 'dependency' }],
  });
  await deploymentIn(stores, project, 'd1', {
    status: 'running',
    datasets: [{ dataset_id: id, name: 'photos', mode: 'dependency', version: 1 }],
  });
  const why = (promise: Promise<unknown>): Promise<string> =>
    promise.then(
      () => '',
      (error: Error) => error.message,
    );
  expect(await codeOf(stores.datasets.markDeleting(id, NOW))).toBe('dataset_in_use');
  expect(await why(stores.datasets.markDeleting(id, NOW))).toContain(
    'project shop, deployment 1 of shop (running)',
  );
  await stores.projects.patch(project.id, { datasets: [] }, NOW);
  expect(await why(stores.datasets.markDeleting(id, NOW))).not.toContain('project shop');
  expect(await why(stores.datasets.markDeleting(id, NOW))).toContain(
    'deployment 1 of shop (running)',
  );
  expect((await stores.datasets.get(id)).deleting_at).toBeNull();
  expect(await codeOf(stores.datasets.markDeleting('nobody', NOW))).toBe('not_found');
});

test('deletion removes everything of the dataset and nothing of another one', async () => {
  const path = freshPath();
  const stores = await open(path);
  const { id } = await datasetIn(stores);
  const many = Object.fromEntries(
    Array.from({ length: 1200 }, (_, i) => [`folder-${i % 600}/file-${i}`, String(i)]),
  );
  await scanned(stores, many, NOW);
  const other = await datasetIn(stores, 'other');
  await scanned(stores, { a: '1' }, NOW + 1);
  expect(await rowsOf(path, 'dataset_history')).toHaveLength(1201);

  await stores.datasets.remove(id);
  expect((await stores.datasets.get(id)).version).toBe(1);
  const marked = await stores.datasets.markDeleting(id, NOW + 2);
  expect(marked.deleting_at).toBe(NOW + 2);
  expect(await stores.datasets.markDeleting(id, NOW + 3)).toEqual(marked);
  expect(await codeOf(stores.datasets.patch(id, { name: 'x' }, NOW))).toBe('being_deleted');
  expect(
    await codeOf(stores.datasets.requestScan(id, { full: false, acceptLoss: false }, NOW)),
  ).toBe('being_deleted');
  expect((await stores.datasets.facts()).map((d) => d.id)).toEqual([other.id]);
  expect((await stores.datasets.listDeleting()).map((d) => d.id)).toEqual([id]);
  expect((await stores.datasets.ids()).sort()).toEqual([id, other.id].sort());
  await stores.datasets.remove(id);
  expect(await codeOf(stores.datasets.get(id))).toBe('not_found');
  for (const table of ['dataset_versions', 'dataset_trees', 'dataset_history'])
    expect([table, (await rowsOf(path, table)).map((row) => row['dataset_id'])]).toEqual([
      table,
      [other.id],
    ]);
});

test('a project can name only existing datasets', async () => {
  const stores = await open();
  const { id } = await datasetIn(stores);
  const uses = (...ids: string[]) => ({
    datasets: ids.map((dataset_id) => ({ dataset_id, mode: 'dependency' as const })),
  });
  expect(await codeOf(projectIn(stores, 'a', uses(id, 'nothing')))).toBe('validation');
  const project = await projectIn(stores, 'a', uses(id));
  expect(await codeOf(stores.projects.patch(project.id, uses('nothing'), NOW))).toBe('validation');
  expect(
    await stores.projects.patch(project.id, { ...uses(), on_dataset_change: 'redeploy' }, NOW),
  ).toMatchObject({
    datasets: [],
    on_dataset_change: 'redeploy',
  });
  await stores.datasets.markDeleting(id, NOW);
  expect(await codeOf(projectIn(stores, 'b', uses(id)))).toBe('validation');
  expect(await codeOf(stores.projects.patch(project.id, uses(id), NOW))).toBe('validation');
});

// Each change alone is valid. Together they would let two versions write at the same time.
test('one of two concurrent changes that together would make a rolling project a writer is refused', async () => {
  const stores = await open();
  const { id } = await datasetIn(stores);
  const project = await projectIn(stores, 'a');
  const writes = {
    datasets: [{ dataset_id: id, mode: 'readwrite' as const }],
    replace: 'recreate' as const,
  };
  const outcomes = await Promise.allSettled([
    stores.projects.patch(project.id, writes, NOW),
    stores.projects.patch(project.id, { replace: 'rolling' }, NOW),
  ]);
  const { datasets, replace } = await stores.projects.get(project.id);
  expect([datasets.length, replace]).not.toEqual([1, 'rolling']);
  expect(
    await codeOf(stores.projects.patch(project.id, { ...writes, replace: 'rolling' }, NOW)),
  ).toBe('validation');
  expect(outcomes.filter((o) => o.status === 'fulfilled').length).toBeGreaterThan(0);
});

test('one of a concurrent deletion and a new use is refused', async () => {
  const stores = await open();
  for (let i = 0; i < 10; i++) {
    const { id } = await datasetIn(stores, `d${i}`);
    const outcomes = await Promise.allSettled([
      stores.datasets.markDeleting(id, NOW),
      projectIn(stores, `p${i}`, { datasets: [{ dataset_id: id, mode: 'dependency' }] }),
    ]);
    expect(outcomes.map((o) => o.status).sort()).toEqual(['fulfilled', 'rejected']);
  }
});

test('facts name the datasets of the project and of its live deployments', async () => {
  const stores = await open();
  const [a, b, c] = [
    await datasetIn(stores, 'a'),
    await datasetIn(stores, 'b'),
    await datasetIn(stores, 'c'),
  ];
  const project = await projectIn(stores, 'shop', {
    datasets: [{ dataset_id: a.id, mode: 'dependency' }],
  });
  await deploymentIn(stores, project, 'd1', { status: 'running' });
  await stores.projects.patch(
    project.id,
    { datasets: [{ dataset_id: b.id, mode: 'readwrite' }], replace: 'recreate' },
    NOW,
  );
  const { datasets } = await stores.flow.facts(project.id);
  expect(datasets).toEqual(
    [a, b].map(({ id, name, nfs_path }) => ({
      id,
      name,
      nfs_path,
      status: 'new',
      problem: null,
      version: null,
      manifest_digest: null,
      bytes: 0,
      files: 0,
    })),
  );
  expect((await stores.datasets.facts()).map((d) => d.id)).toEqual([a.id, b.id, c.id]);
});

test('running deployments with a dataset are found by their pinned versions', async () => {
  const stores = await open();
  const [a, b] = [await datasetIn(stores, 'a'), await datasetIn(stores, 'b')];
  const pin = (id: string, name: string) => ({
    dataset_id: id,
    name,
    mode: 'dependency' as const,
    version: 3,
  });
  const [shop, till] = [await projectIn(stores, 'shop'), await projectIn(stores, 'till')];
  await deploymentIn(stores, shop, 'd1', { status: 'running', datasets: [pin(a.id, 'a')] });
  await deploymentIn(stores, till, 'd2', { status: 'retired', datasets: [pin(a.id, 'a')] });
  await deploymentIn(stores, till, 'd3', { status: 'running', datasets: [pin(b.id, a.id)] });
  expect((await stores.deployments.runningWith(a.id)).map((d) => [d.id, d.datasets])).toEqual([
    ['d1', [pin(a.id, 'a')]],
  ]);
  expect((await stores.deployments.runningWith(b.id)).map((d) => d.id)).toEqual(['d3']);
  const mounted = await stores.deployments.mountedNow();
  expect(mounted).toHaveLength(2);
  expect(mounted.flat()).toEqual(expect.arrayContaining([pin(a.id, 'a'), pin(b.id, a.id)]));
});

test('a drain is set only by a caller that knows its present state', async () => {
  const stores = await open();
  const { id } = await nodeIn(stores);
  const drain = (moved: number) => ({ started_at: NOW, finished_at: null, moved, tries: {} });
  expect(await stores.nodes.setDrain(id, drain(0), drain(1))).toBeNull();
  expect((await stores.nodes.setDrain(id, drain(0), null))?.drain).toEqual(drain(0));
  const { drain: seen } = await stores.nodes.get(id);
  expect((await stores.nodes.setDrain(id, drain(1), seen))?.drain).toEqual(drain(1));
  expect(await stores.nodes.setDrain(id, drain(2), seen)).toBeNull();
  expect((await stores.nodes.all()).map((n) => n.drain)).toEqual([drain(1)]);
  expect((await stores.nodes.setDrain(id, null, drain(1)))?.drain).toBeNull();
  expect(await codeOf(stores.nodes.setDrain('nobody', null, null))).toBe('not_found');
  expect((await nodeIn(stores, 'b1', { copy_rate: 5e6 })).copy_rate).toBe(5e6);
  expect((await nodeIn(stores, 'b1')).copy_rate).toBe(5e6);
  expect((await nodeIn(stores, 'b1', { copy_rate: null })).copy_rate).toBeNull();
});
