/**
 * The recording thread. The content of recordings is tested in dataset-scans.slow.test.ts and
 * dataset-history.slow.test.ts.
 */
import { existsSync, statSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import type { Worker } from 'node:worker_threads';
import { expect, onTestFinished, test } from 'vitest';
import type { AllStores } from '../../src/store/open.ts';
import { openDatabase } from '../../src/store/engine/database.ts';
import { storesOn } from '../../src/store/open.ts';
import { createRecorder } from '../../src/store/datasets/recording.ts';
import { type FakeTree, fakeTree } from '../fake-tree.ts';
import { claimed, datasetIn, found, record, scanned, versionOf } from './datasets-in.ts';
import { freshPath, NOW, open, quiet, rowsOf, type Rows } from './fixtures.ts';

/**
 * A thread needs 0.5 s of CPU time to start and has a low priority: it takes seconds on a loaded
 * machine.
 */
const THREAD = { timeout: 30_000 };
const page = { limit: 100, cursor: null };
const signal = new AbortController().signal;

const filesIn = (folders: number, each: number, content = ''): Record<string, string> =>
  Object.fromEntries(
    Array.from({ length: folders }, (_, f) =>
      Array.from({ length: each }, (_, i) => [`folder-${f}/file-${i}`, `${content}${f}.${i}`]),
    ).flat(),
  );
/** Reads the objects of a scan; calls `before` with the number of earlier reads. */
function objectsOf(
  tree: FakeTree,
  before: (read: number) => unknown = () => {},
): (digest: string) => Promise<string> {
  let read = 0;
  return async (digest) => {
    await before(read++);
    return tree.objects.get(digest) ?? Promise.reject(new Error(`no object ${digest}`));
  };
}

/** Returns the next thread that this process starts. */
const nextThread = (): Promise<Worker> => new Promise((resolve) => process.once('worker', resolve));

async function recorded(path: string): Promise<{ trees: Rows; history: Rows }> {
  const rows = async (table: string): Promise<Rows> =>
    (await rowsOf(path, table)).map(({ dataset_id: _, ...row }) => row);
  return { trees: await rows('dataset_trees'), history: await rows('dataset_history') };
}

async function finished(stores: AllStores, tree: FakeTree, now: number): Promise<void> {
  const claim = await claimed(stores, now);
  expect(await record(stores, claim, tree)).toBe(true);
  expect(
    await stores.datasets.finishScan(
      claim,
      { set: found(now), newVersion: versionOf(claim, tree) },
      now,
    ),
  ).toBe(true);
}

test('the thread records the same as the main thread', THREAD, async () => {
  const paths = [freshPath(), freshPath()] as const;
  const db = await openDatabase(`sqlite:${paths[1]}`, quiet, () => NOW);
  onTestFinished(() => db.close());
  const both = [await open(paths[0]), storesOn({ ...db, recorder: null }, () => NOW)];
  for (const stores of both) {
    await datasetIn(stores);
    await scanned(stores, filesIn(9, 40), NOW);
    await scanned(
      stores,
      { ...filesIn(8, 50), 'folder-3/file-7': 'modified', 'folder-4': 'a file now' },
      NOW + 1000,
    );
  }
  const [aside, among] = await Promise.all(paths.map(recorded));
  expect(aside?.history.length).toBeGreaterThan(400);
  expect(aside).toEqual(among);
});

test('other writers proceed while the thread records', THREAD, async () => {
  const path = freshPath();
  const stores = await open(path);
  const { id } = await datasetIn(stores);
  const claim = await claimed(stores);
  const tree = fakeTree(filesIn(40, 100));
  const recording = { over: false };
  const recordedAll = record(stores, claim, tree).finally(() => {
    recording.over = true;
  });
  let written = 0;
  while (!recording.over) {
    expect(await stores.meta.setOnce(`key ${written}`, 'value')).toBe('value');
    expect(await stores.datasets.renewClaim(claim, NOW + 60_000 + written)).toBe(true);
    written++;
    await pause(10);
  }
  expect(await recordedAll).toBe(true);
  expect(written).toBeGreaterThan(10);
  expect(
    await stores.datasets.finishScan(
      claim,
      { set: found(NOW), newVersion: versionOf(claim, tree) },
      NOW,
    ),
  ).toBe(true);
  expect((await stores.datasets.versions(id, page)).items).toMatchObject([
    { version: 1, files: 4_000 },
  ]);
  expect(await stores.datasets.trees(id, [...tree.objects.keys()])).toEqual(tree.objects);
  expect(await rowsOf(path, 'dataset_history')).toHaveLength(4_000);
});

test('the WAL stays bounded although only the thread writes', THREAD, async () => {
  const path = freshPath();
  const stores = await open(path);
  await datasetIn(stores);
  expect(await record(stores, await claimed(stores), fakeTree(filesIn(40, 500)))).toBe(true);
  // Without checkpoints it would be twice as large.
  expect(statSync(`${path}-wal`).size).toBeLessThan(7_000_000);
  expect(statSync(path).size).toBeGreaterThan(4_000_000);
});

test(
  'an aborted recording leaves nothing visible, and the next one removes its rows',
  THREAD,
  async () => {
    const path = freshPath();
    const stores = await open(path);
    const { id } = await datasetIn(stores);
    const claim = await claimed(stores);
    const left = fakeTree(filesIn(20, 100, 'left'));
    const stop = new AbortController();
    const objects = objectsOf(left, (count) => count === 15 && stop.abort(new Error('enough')));
    await expect(
      stores.datasets.record(claim, versionOf(claim, left), objects, stop.signal),
    ).rejects.toThrow('enough');
    await expect(
      stores.datasets.record(claim, versionOf(claim, left), objects, stop.signal),
    ).rejects.toThrow('enough');
    const rows = await rowsOf(path, 'dataset_history');
    expect(rows.length).toBeGreaterThan(500);
    expect(rows.length).toBeLessThan(2000);
    expect((await stores.datasets.history(id, {}, page)).items).toEqual([]);
    expect((await stores.datasets.versions(id, page)).items).toEqual([]);
    await stores.datasets.giveBack(claim);

    const tree = fakeTree({ a: '1', b: '2' });
    await finished(stores, tree, NOW + 1);
    expect((await rowsOf(path, 'dataset_history')).map((row) => row['path'])).toEqual(['a', 'b']);
  },
);

test(
  'a claim lost during a recording ends it, and its rows do not mix with those of its successor',
  THREAD,
  async () => {
    const path = freshPath();
    const stores = await open(path);
    await datasetIn(stores);
    const first = await claimed(stores, NOW, 'first');
    const late = fakeTree(filesIn(20, 100, 'late'));
    const objects = objectsOf(
      late,
      (count) => count === 15 && stores.datasets.claimDue('second', NOW + 60_000, NOW + 99_000),
    );
    expect(await stores.datasets.record(first, versionOf(first, late), objects, signal)).toBe(
      false,
    );
    const second = { token: 'second', dataset: await stores.datasets.get(first.dataset.id) };
    expect(await record(stores, second, fakeTree({ a: '1' }))).toBe(true);
    expect((await rowsOf(path, 'dataset_history')).map((row) => row['path'])).toEqual(['a']);
  },
);

test(
  'recordings of a dead thread fail, and the next version gets a new thread',
  THREAD,
  async () => {
    const path = freshPath();
    const stores = await open(path);
    const { id } = await datasetIn(stores);
    const claim = await claimed(stores);
    const started = nextThread();
    const tree = fakeTree(filesIn(20, 100));
    const objects = objectsOf(tree, async (count) => count === 15 && (await started).terminate());
    await expect(
      stores.datasets.record(claim, versionOf(claim, tree), objects, signal),
    ).rejects.toThrow('the recording thread exited');
    await stores.datasets.giveBack(claim);
    await finished(stores, tree, NOW + 1);
    expect((await stores.datasets.versions(id, page)).items).toMatchObject([
      { version: 1, files: 2000 },
    ]);
    expect(await rowsOf(path, 'dataset_history')).toHaveLength(2000);
  },
);

test(
  'a recording fails with the reason if the thread cannot open the file or an object cannot be read',
  THREAD,
  async () => {
    const path = freshPath();
    const stores = await open(path);
    await datasetIn(stores);
    const claim = await claimed(stores);
    const tree = fakeTree({ a: '1' });
    const lost = createRecorder(`${path}-elsewhere`);
    onTestFinished(() => lost.close());
    for (let i = 0; i < 2; i++)
      await expect(
        lost.record(claim, versionOf(claim, tree), objectsOf(tree), signal),
      ).rejects.toThrow('unable to open database file');
    const unread = objectsOf(tree, () => Promise.reject(new Error('EIO')));
    await expect(
      stores.datasets.record(claim, versionOf(claim, tree), unread, signal),
    ).rejects.toThrow('EIO');
  },
);

test('closing the database ends the thread and its recordings', THREAD, async () => {
  const path = freshPath();
  const db = await openDatabase(`sqlite:${path}`, quiet, () => NOW);
  const stores = storesOn(db, () => NOW);
  await datasetIn(stores);
  const claim = await claimed(stores);
  const tree = fakeTree(filesIn(20, 100));
  const ended: number[] = [];
  const started = nextThread();
  void started.then((thread) => thread.once('exit', (code) => ended.push(code)));
  const closed = Promise.withResolvers<void>();
  const objects = objectsOf(tree, (count) => {
    if (count === 5) db.close().then(closed.resolve, closed.reject);
  });
  await expect(
    stores.datasets.record(claim, versionOf(claim, tree), objects, signal),
  ).rejects.toThrow('the database is being closed');
  await closed.promise;
  expect(ended).toEqual([0]);
  // The last connection removes the WAL: the thread closed its own before.
  expect(existsSync(`${path}-wal`)).toBe(false);
  await expect(
    stores.datasets.record(claim, versionOf(claim, tree), objects, signal),
  ).rejects.toThrow('the database is closed');
});
