import { expect, test } from 'vitest';
import type { AllStores } from '../../src/store/open.ts';
import { fakeTree } from '../fake-tree.ts';
import { claimed, datasetIn, scanned } from './datasets-in.ts';
import { deploymentIn, freshPath, nodeIn, NOW, open, projectIn, rowsOf } from './fixtures.ts';

const page = { limit: 100, cursor: null };
const files = (v: number): Record<string, string> => ({
  'same/file': 's',
  'other/file': `o${v}`,
  [`once-${v}/file`]: 'x',
  'back/file': v % 2 === 0 ? 'even' : 'odd',
});

async function versions(
  count: number,
): Promise<{ stores: AllStores; path: string; id: string; kept: () => Promise<number[]> }> {
  const path = freshPath();
  const stores = await open(path);
  const { id } = await datasetIn(stores);
  for (let v = 1; v <= count; v++) await scanned(stores, files(v), NOW + v * 2000);
  const kept = async (): Promise<number[]> =>
    (await stores.datasets.versions(id, page)).items.map((v) => v.version);
  return { stores, path, id, kept };
}
const digestsOf = async (path: string): Promise<string[]> =>
  (await rowsOf(path, 'dataset_trees')).map((row) => String(row['digest'])).sort();
const objectsOf = (...kept: number[]): string[] =>
  [...new Set(kept.flatMap((v) => [...fakeTree(files(v)).objects.keys()]))].sort();

test('the newest versions stay complete; older ones are removed with their history and their own tree objects', async () => {
  const { stores, path, id, kept } = await versions(6);
  const claim = await claimed(stores, NOW + 99_000);
  expect(await stores.datasets.prune(claim, 6)).toBe(0);
  expect(await stores.datasets.prune(claim, 2)).toBe(4);
  expect(await kept()).toEqual([6, 5]);
  expect(await digestsOf(path)).toEqual(objectsOf(5, 6));
  expect(new Set((await rowsOf(path, 'dataset_history')).map((row) => row['version']))).toEqual(
    new Set([5, 6]),
  );
  expect(await stores.datasets.prune(claim, 2)).toBe(0);
  await stores.datasets.giveBack(claim);
  // Content of a removed version that returns is complete again.
  const again = await scanned(stores, files(1), NOW + 99_001);
  expect(again.version).toBe(7);
  expect(await stores.datasets.trees(id, [...fakeTree(files(1)).objects.keys()])).toEqual(
    fakeTree(files(1)).objects,
  );
});

test('a version that is mounted, or that a node pins for a release, stays', async () => {
  const { stores, path, id, kept } = await versions(5);
  const project = await projectIn(stores);
  const pin = (version: number) => ({
    datasets: [{ dataset_id: id, name: 'photos', mode: 'dependency' as const, version }],
  });
  await deploymentIn(stores, project, 'd1', { status: 'running', ...pin(1) });
  await deploymentIn(stores, project, 'd2', { status: 'retired', ...pin(2) });
  const cached = { dataset_id: id, bytes: 1, last_used_at: '2026-01-01T00:00:00Z' };
  await nodeIn(stores, 'n', {
    cached: [
      { ...cached, version: 3, pinned: true },
      { ...cached, version: 4 },
    ],
  });
  expect(await stores.datasets.prune(await claimed(stores, NOW + 99_000), 1)).toBe(2);
  expect(await kept()).toEqual([5, 3, 1]);
  expect(await digestsOf(path)).toEqual(objectsOf(1, 3, 5));
});

test('a lost claim removes nothing', async () => {
  const { stores, path, kept } = await versions(3);
  const lost = await claimed(stores, NOW + 99_000, 'lost');
  await claimed(stores, NOW + 199_000, 'holds');
  expect(await stores.datasets.prune(lost, 1)).toBe(0);
  expect(await kept()).toEqual([3, 2, 1]);
  expect(await digestsOf(path)).toEqual(objectsOf(1, 2, 3));
});
