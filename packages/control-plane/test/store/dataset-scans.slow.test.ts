import { expect, test } from 'vitest';
import type { ScanClaim } from '../../src/domain/data/dataset-stores.ts';
import { fakeTree } from '../fake-tree.ts';
import { claimed, datasetIn, found, record, scanned, versionOf } from './datasets-in.ts';
import { freshPath, NOW, open, rowsOf } from './fixtures.ts';

const page = { limit: 100, cursor: null };
const asked = (full = false, acceptLoss = false) => ({ full, acceptLoss });

test('the dataset that is due longest is claimed first, by one scan, and again when it is due again', async () => {
  const stores = await open();
  const [a, b] = [await datasetIn(stores, 'a', NOW + 1), await datasetIn(stores, 'b')];
  const claims = await Promise.all(
    Array.from({ length: 5 }, (_, i) => stores.datasets.claimDue(`t${i}`, NOW + 1, NOW + 9)),
  );
  expect(claims.flatMap((c) => c?.dataset.id ?? []).sort()).toEqual([a.id, b.id].sort());
  const claim = claims.find((c) => c?.dataset.id === b.id) as ScanClaim;
  expect(claim.dataset).toMatchObject({ scanning_by: claim.token, scanning_until: NOW + 9 });
  expect(await stores.datasets.claimDue('late', NOW + 8, NOW + 9)).toBeNull();

  expect(
    await stores.datasets.finishScan(claim, { set: found(NOW + 2), newVersion: null }, NOW + 2),
  ).toBe(true);
  expect(await stores.datasets.get(b.id)).toMatchObject({
    status: 'ok',
    scan_requested_at: null,
    scanning_by: null,
    last_scanned_at: NOW + 2,
  });
  expect(await stores.datasets.claimDue('late', NOW + 8, NOW + 9)).toBeNull();
  expect((await stores.datasets.claimDue('later', NOW + 1002, NOW + 2000))?.dataset.id).toBe(a.id);
  expect((await stores.datasets.claimDue('later', NOW + 1002, NOW + 2000))?.dataset.id).toBe(b.id);
});

test('a claim is valid while it is renewed; after it is lost, its scan writes nothing', async () => {
  const path = freshPath();
  const stores = await open(path);
  await datasetIn(stores);
  const first = await claimed(stores, NOW, 'first');
  expect(await stores.datasets.renewClaim(first, NOW + 60_000)).toBe(true);
  expect(await stores.datasets.claimDue('second', NOW + 59_999, NOW + 99_999)).toBeNull();
  const second = await claimed(stores, NOW + 60_000, 'second');
  expect(await stores.datasets.renewClaim(first, NOW + 99_999)).toBe(false);
  const tree = fakeTree({ a: '1' });
  expect(await record(stores, first, tree)).toBe(false);
  expect(
    await stores.datasets.finishScan(
      first,
      { set: found(NOW), newVersion: versionOf(first, tree) },
      NOW,
    ),
  ).toBe(false);
  await stores.datasets.giveBack(first);
  expect((await stores.datasets.get(first.dataset.id)).scanning_by).toBe('second');
  for (const table of ['dataset_versions', 'dataset_trees', 'dataset_history'])
    expect(await rowsOf(path, table)).toEqual([]);
  await stores.datasets.giveBack(second);
  expect((await claimed(stores, NOW + 60_001, 'third')).dataset.id).toBe(first.dataset.id);
});

test('a killed scan leaves nothing visible, and the next one records the version once', async () => {
  const path = freshPath();
  const stores = await open(path);
  const { id } = await datasetIn(stores);
  const files = Object.fromEntries(Array.from({ length: 700 }, (_, i) => [`f${i}`, `${i}`]));
  const first = await claimed(stores);
  // Everything was written, but the scan died before it finished.
  expect(await record(stores, first, fakeTree({ ...files, extra: 'x' }))).toBe(true);
  expect((await rowsOf(path, 'dataset_history')).length).toBe(701);
  expect((await stores.datasets.history(id, {}, page)).items).toEqual([]);
  expect((await stores.datasets.versions(id, page)).items).toEqual([]);
  expect((await stores.datasets.get(id)).version).toBeNull();

  await scanned(stores, files, NOW + 60_000);
  expect((await rowsOf(path, 'dataset_history')).length).toBe(700);
  expect((await stores.datasets.versions(id, page)).items).toMatchObject([
    { version: 1, files: 700, created_at: NOW + 60_000 },
  ]);
});

test('options requested during a scan are for the next scan', async () => {
  const stores = await open();
  const { id } = await datasetIn(stores);
  const first = await claimed(stores);
  expect(first.dataset).toMatchObject({ scan_full: false, accept_loss: false });
  expect(await stores.datasets.requestScan(id, asked(true, true), NOW)).toMatchObject({
    scan_full: true,
    accept_loss: true,
  });
  await stores.datasets.finishScan(first, { set: found(NOW), newVersion: null }, NOW);
  const second = await claimed(stores, NOW + 1);
  expect(second.dataset).toMatchObject({ scan_full: true, accept_loss: true });
  // A plain scan, requested while a scan that accepts a loss runs: the next one accepts no loss.
  await stores.datasets.requestScan(id, asked(), NOW + 1);
  await stores.datasets.finishScan(second, { set: found(NOW + 1), newVersion: null }, NOW + 1);
  const third = await claimed(stores, NOW + 2);
  expect(third.dataset).toMatchObject({ scan_full: false, accept_loss: false });
  await stores.datasets.finishScan(third, { set: found(NOW + 2), newVersion: null }, NOW + 2);
  expect(await stores.datasets.claimDue('t', NOW + 3, NOW + 4)).toBeNull();
  // Two requests before a scan begins: it has both options.
  await stores.datasets.requestScan(id, asked(true), NOW + 3);
  expect(await stores.datasets.requestScan(id, asked(), NOW + 3)).toMatchObject({
    scan_full: true,
  });
});

// An agent requests a scan when a source changed during its copy. That must not cancel an option
// that a person requested.
test('options requested during a scan survive later requests and any end of the scan', async () => {
  const stores = await open();
  const { id } = await datasetIn(stores);
  const first = await claimed(stores);
  await stores.datasets.requestScan(id, asked(true, true), NOW);
  await stores.datasets.requestScan(id, asked(), NOW);
  await stores.datasets.finishScan(first, { set: found(NOW), newVersion: null }, NOW);
  const second = await claimed(stores, NOW + 1);
  expect(second.dataset).toMatchObject({ scan_full: true, accept_loss: true });
  // The claim is released, or taken over after its process died: the options stay.
  await stores.datasets.requestScan(id, asked(), NOW + 1);
  await stores.datasets.giveBack(second);
  const third = await claimed(stores, NOW + 2);
  expect(third.dataset).toMatchObject({ scan_full: true, accept_loss: true });
  await stores.datasets.requestScan(id, asked(), NOW + 2);
  const fourth = await claimed(stores, NOW + 60_000);
  expect(fourth.dataset).toMatchObject({ scan_full: true, accept_loss: true });
  // After the scan ended the options are gone.
  await stores.datasets.requestScan(id, asked(), NOW + 60_000);
  await stores.datasets.finishScan(
    fourth,
    { set: found(NOW + 60_000), newVersion: null },
    NOW + 60_000,
  );
  expect((await claimed(stores, NOW + 60_001)).dataset).toMatchObject({
    scan_full: false,
    accept_loss: false,
  });
});

test('a scan of the dataset’s former folder records nothing', async () => {
  const stores = await open();
  const { id } = await datasetIn(stores);
  const claim = await claimed(stores);
  await stores.datasets.patch(id, { nfs_path: 'data/moved' }, NOW);
  const tree = fakeTree({ a: '1' });
  await record(stores, claim, tree);
  expect(
    await stores.datasets.finishScan(
      claim,
      { set: found(NOW), newVersion: versionOf(claim, tree) },
      NOW,
    ),
  ).toBe(false);
  expect(await stores.datasets.get(id)).toMatchObject({
    status: 'new',
    version: null,
    scanning_by: null,
  });
  expect((await claimed(stores, NOW + 1)).dataset.nfs_path).toBe('data/moved');
});

test('a dataset that is being deleted is neither claimed nor written to', async () => {
  const stores = await open();
  const { id } = await datasetIn(stores);
  const claim = await claimed(stores);
  await stores.datasets.markDeleting(id, NOW);
  expect(await stores.datasets.renewClaim(claim, NOW + 9)).toBe(false);
  expect(await record(stores, claim, fakeTree({ a: '1' }))).toBe(false);
  expect(await stores.datasets.claimDue('t', NOW + 99_999, NOW + 100_000)).toBeNull();
});

test('versions have rising numbers and times, even after the clock was set back', async () => {
  const stores = await open();
  const { id } = await datasetIn(stores);
  await scanned(stores, { a: '1' }, NOW + 5000);
  await stores.datasets.requestScan(id, asked(), NOW);
  await scanned(stores, { a: '2' }, NOW + 1000);
  expect(
    (await stores.datasets.versions(id, page)).items.map((v) => [v.version, v.created_at]),
  ).toEqual([
    [2, NOW + 5000],
    [1, NOW + 5000],
  ]);
  await stores.datasets.requestScan(id, asked(), NOW);
  const claim = await claimed(stores, NOW + 6000);
  const late = { ...versionOf(claim, fakeTree({})), version: 2 };
  await expect(
    stores.datasets.finishScan(claim, { set: found(NOW), newVersion: late }, NOW),
  ).rejects.toThrow('does not follow');
});

const HOUR = 3_600_000;
test.each([0, HOUR, -HOUR, -24 * HOUR])(
  'a claim survives a jump of the machine’s clock by %i ms',
  async (jump) => {
    const stores = await open();
    const { id } = await datasetIn(stores);
    const claimed = async (token: string, after: number, jumped = jump): Promise<string | null> => {
      const now = NOW + after + jumped;
      return (
        (await stores.datasets.claimDue(token, now, NOW + after + 30_000, NOW + after))?.dataset
          .id ?? null
      );
    };
    // A renewed claim stays. The claim of a dead control plane is taken over after 30 s.
    expect(await claimed('first', 1_000, 0)).toBe(id);
    expect(await claimed('second', 20_000)).toBeNull();
    expect(await claimed('second', 32_000)).toBe(id);

    // The next scan is due within its interval.
    const claim = { token: 'second', dataset: await stores.datasets.get(id) };
    const at = NOW + 40_000;
    const set = {
      status: 'ok' as const,
      problem: null,
      last_scanned_at: at,
      next_scan_at: at + 600_000,
    };
    expect(await stores.datasets.finishScan(claim, { set, newVersion: null }, at)).toBe(true);
    expect(await claimed('third', 641_000)).toBe(id);
  },
);
