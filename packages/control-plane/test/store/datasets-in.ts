/** Makes datasets with versions, as the monitor records them. */
import { expect } from 'vitest';
import type { ScanClaim, ScanPlan } from '../../src/domain/data/dataset-stores.ts';
import type { DatasetRecord } from '../../src/domain/platform/records.ts';
import type { AllStores } from '../../src/store/open.ts';
import { type FakeTree, fakeTree } from '../fake-tree.ts';
import { NOW } from './fixtures.ts';

export const datasetIn = (stores: AllStores, name = 'photos', now = NOW): Promise<DatasetRecord> =>
  stores.datasets.create({ name, nfs_path: `data/${name}` }, now);

/** Claims the one dataset that is due. */
export async function claimed(
  stores: AllStores,
  now = NOW,
  token = `token-${now}`,
): Promise<ScanClaim> {
  const claim = await stores.datasets.claimDue(token, now, now + 30_000);
  if (claim === null) throw new Error('fixture: nothing is due');
  return claim;
}

export const found = (now: number): ScanPlan['set'] => ({
  status: 'ok',
  problem: null,
  last_scanned_at: now,
  next_scan_at: now + 1000,
});

export const versionOf = (
  claim: ScanClaim,
  tree: FakeTree,
): NonNullable<ScanPlan['newVersion']> => ({
  version: (claim.dataset.version ?? 0) + 1,
  manifest_digest: tree.digest,
  files: tree.files,
  bytes: tree.bytes,
});

export const record = (stores: AllStores, claim: ScanClaim, tree: FakeTree): Promise<boolean> =>
  stores.datasets.record(
    claim,
    versionOf(claim, tree),
    async (digest) => tree.objects.get(digest) ?? Promise.reject(new Error(`no object ${digest}`)),
    new AbortController().signal,
  );

/** Runs one scan, from its claim to its end. */
export async function scanned(
  stores: AllStores,
  files: Record<string, string>,
  now: number,
): Promise<DatasetRecord> {
  const claim = await claimed(stores, now);
  const tree = fakeTree(files);
  expect(await record(stores, claim, tree)).toBe(true);
  expect(
    await stores.datasets.finishScan(
      claim,
      { set: found(now), newVersion: versionOf(claim, tree) },
      now,
    ),
  ).toBe(true);
  return stores.datasets.get(claim.dataset.id);
}
