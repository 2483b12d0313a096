import { createHash } from 'node:crypto';
import { expect, test } from 'vitest';
import type { HistoryFilter } from '../../src/domain/data/dataset-stores.ts';
import type { AllStores } from '../../src/store/open.ts';
import { checksumOf, fakeTree } from '../fake-tree.ts';
import { datasetIn, scanned } from './datasets-in.ts';
import { codeOf, NOW, open } from './fixtures.ts';

const page = { limit: 100, cursor: null };

async function threeVersions(): Promise<{
  stores: AllStores;
  id: string;
  rows: (filter?: HistoryFilter) => Promise<string[]>;
}> {
  const stores = await open();
  const { id } = await datasetIn(stores);
  await scanned(stores, { 'a/one': '1', 'a/two': '2', a0: '3', b: '4' }, NOW + 1000);
  await scanned(stores, { 'a/one': '1', 'a/two': 'II', a0: '3', c: '5' }, NOW + 2000);
  await scanned(stores, { 'a/two': 'II', a0: '3', c: '6', 'a/deep/x%0Ay': '' }, NOW + 3000);
  const rows = async (filter: HistoryFilter = {}): Promise<string[]> =>
    (await stores.datasets.history(id, filter, page)).items.map(
      (row) => `${row.version} ${row.path} ${row.change}`,
    );
  return { stores, id, rows };
}

test('history lists added, modified and removed files with both checksums, newest first', async () => {
  const { stores, id, rows } = await threeVersions();
  expect(await rows()).toEqual([
    '3 a/deep/x%0Ay added',
    '3 a/one removed',
    '3 c modified',
    '2 a/two modified',
    '2 b removed',
    '2 c added',
    '1 a/one added',
    '1 a/two added',
    '1 a0 added',
    '1 b added',
  ]);
  const { items } = await stores.datasets.history(id, { version: 2 }, page);
  expect(items).toEqual([
    {
      version: 2,
      at: NOW + 2000,
      path: 'a/two',
      change: 'modified',
      size: 2,
      checksum: checksumOf('II'),
      previous_checksum: checksumOf('2'),
    },
    {
      version: 2,
      at: NOW + 2000,
      path: 'b',
      change: 'removed',
      size: null,
      checksum: null,
      previous_checksum: checksumOf('4'),
    },
    {
      version: 2,
      at: NOW + 2000,
      path: 'c',
      change: 'added',
      size: 1,
      checksum: checksumOf('5'),
      previous_checksum: null,
    },
  ]);
});

test('history can be filtered by path, folder and time', async () => {
  const { rows, stores } = await threeVersions();
  expect(await rows({ paths: ['c'] })).toEqual(['3 c modified', '2 c added']);
  expect(await rows({ paths: ['a'] })).toEqual([]);
  expect(await rows({ folders: ['a/'] })).toEqual([
    '3 a/deep/x%0Ay added',
    '3 a/one removed',
    '2 a/two modified',
    '1 a/one added',
    '1 a/two added',
  ]);
  expect(await rows({ folders: ['a/deep/', 'nothing/'] })).toEqual(['3 a/deep/x%0Ay added']);
  expect(await rows({ since: NOW + 2000, until: NOW + 3000 })).toEqual([
    '2 a/two modified',
    '2 b removed',
    '2 c added',
  ]);
  expect(await rows({ since: NOW + 2000, paths: ['b'] })).toEqual(['2 b removed']);
  expect(await rows({ version: 9 })).toEqual([]);
  expect(await codeOf(stores.datasets.history('nobody', {}, page))).toBe('not_found');
  expect(await codeOf(stores.datasets.versions('nobody', page))).toBe('not_found');
});

test('pages of any size neither repeat nor skip a row', async () => {
  const { stores, id, rows } = await threeVersions();
  const all = await rows();
  for (const limit of [1, 2, 3, 7, 10]) {
    const seen: string[] = [];
    for (let cursor: string | null = null, more = true; more; more = cursor !== null) {
      const { items, next } = await stores.datasets.history(id, {}, { limit, cursor });
      expect(items.length).toBeLessThanOrEqual(limit);
      seen.push(...items.map((row) => `${row.version} ${row.path} ${row.change}`));
      cursor = next;
    }
    expect(seen).toEqual(all);
  }
  const first = await stores.datasets.versions(id, { limit: 2, cursor: null });
  const rest = await stores.datasets.versions(id, { limit: 2, cursor: first.next });
  expect([...first.items, ...rest.items].map((v) => v.version)).toEqual([3, 2, 1]);
  expect(await codeOf(stores.datasets.history(id, {}, { limit: 1, cursor: 'x' }))).toBe(
    'validation',
  );
});

test('every version is provable: its objects are stored under their digests', async () => {
  const { stores, id } = await threeVersions();
  const { objects, digest } = fakeTree({ 'a/one': '1', 'a/two': '2', a0: '3', b: '4' });
  expect(await stores.datasets.trees(id, [...objects.keys(), 'sha256:nothing'])).toEqual(objects);
  expect((await stores.datasets.versions(id, page)).items.at(-1)).toEqual({
    dataset_id: id,
    version: 1,
    created_at: NOW + 1000,
    files: 4,
    bytes: 4,
    manifest_digest: digest,
  });
  expect(await stores.datasets.trees('nobody', [digest])).toEqual(new Map());
});

test('an empty dataset has a version', async () => {
  const stores = await open();
  const { id } = await datasetIn(stores);
  const { digest } = fakeTree({});
  expect(await scanned(stores, {}, NOW)).toMatchObject({
    version: 1,
    files: 0,
    bytes: 0,
    manifest_digest: digest,
  });
  expect((await stores.datasets.trees(id, [digest])).size).toBe(1);
  expect((await stores.datasets.history(id, {}, page)).items).toEqual([]);
});

// The longest path of the file system, encoded with 3 characters a byte. It is an index key, and
// each engine must accept it.
test('the longest possible path is recorded, found and listed in pages', async () => {
  const stores = await open();
  const { id } = await datasetIn(stores);
  const random = (n: number): string =>
    Array.from(
      { length: n },
      (_, i) => createHash('sha256').update(`${n} ${i}`).digest('base64url')[i % 40],
    ).join('');
  const long = Array.from({ length: 15 }, (_, i) => random(240 + i)).join('/');
  await scanned(stores, { [long]: '1', zzz: '2' }, NOW);
  expect(
    (await stores.datasets.history(id, { paths: [long] }, page)).items.map((r) => r.path),
  ).toEqual([long]);
  for (const depth of [1, 5, 8, 14]) {
    const folder = `${long.split('/').slice(0, depth).join('/')}/`;
    expect(
      (await stores.datasets.history(id, { folders: [folder] }, page)).items.map((r) => r.path),
    ).toEqual([long]);
    expect(
      (await stores.datasets.history(id, { folders: [folder.replace(/.\/$/, '-/')] }, page)).items,
    ).toEqual([]);
  }
  const first = await stores.datasets.history(id, {}, { limit: 1, cursor: null });
  expect(
    (await stores.datasets.history(id, {}, { limit: 1, cursor: first.next })).items.map(
      (r) => r.path,
    ),
  ).toEqual(['zzz']);
});
