/** Creates datasets with versions, as scans would, without files. */
import { randomUUID } from 'node:crypto';
import { expect } from 'vitest';
import type { AllStores } from '../../src/store/open.ts';

/**
 * Records a version for each of `sizes` (in bytes), for a new dataset or for `id`. Returns the id.
 */
export async function withVersions(
  { stores }: { stores: AllStores },
  name: string,
  sizes: readonly number[],
  id: string | null = null,
): Promise<string> {
  const now = Date.now();
  const dataset = id ?? (await stores.datasets.create({ name, nfs_path: name }, now)).id;
  for (const bytes of sizes) {
    await stores.datasets.requestScan(dataset, { full: false, acceptLoss: false }, now);
    const claim = await stores.datasets.claimDue(randomUUID(), now, now + 60_000);
    if (claim?.dataset.id !== dataset)
      throw new Error(`fixture: another dataset than ${name} is due`);
    const version = (claim.dataset.version ?? 0) + 1;
    const set = {
      status: 'ok' as const,
      problem: null,
      last_scanned_at: now,
      next_scan_at: now + 3_600_000,
    };
    const manifest_digest = `sha256:${String(version).padStart(64, '0')}`;
    expect(
      await stores.datasets.finishScan(
        claim,
        { set, newVersion: { version, files: 1, bytes, manifest_digest } },
        now,
      ),
    ).toBe(true);
  }
  return dataset;
}
