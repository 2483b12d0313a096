/**
 * What a scan means for a dataset: pure, like the flow of deployments. A version is recorded only of what was really seen, and
 * what is known stays when the share cannot be read or has lost most of its files.
 *
 *   new ─────────┐ unchanged, changed        ┌─ unreachable: the share cannot be read, or is another one
 *   unreachable ─┼──────────────────▶ ok ────┤
 *   suspicious ──┘                           └─ suspicious: emptied or mostly gone, until it is back or someone accepts the loss
 *
 * `unsettled` (files that never held still) changes no state: the problem is told and it is scanned again sooner.
 */
import type { ScanPlan } from '../domain/dataset-stores.ts';
import type { DatasetRecord } from '../domain/records.ts';
import type { ScanOutcome } from '../domain/scan.ts';

/** How soon a share that could not be read, or did not hold still, is looked at again; never later than the usual period. */
const SOON_MS = 60_000;

export function afterScan(
  dataset: Pick<DatasetRecord, 'status' | 'version' | 'manifest_digest'>,
  found: ScanOutcome,
  at: { now: number; intervalMs: number },
): ScanPlan {
  const later = { last_scanned_at: at.now, next_scan_at: at.now + at.intervalMs };
  const sooner = { last_scanned_at: at.now, next_scan_at: at.now + Math.min(at.intervalMs, SOON_MS) };
  switch (found.kind) {
    case 'unreachable':
      return { set: { ...sooner, status: 'unreachable', problem: found.problem }, newVersion: null };
    case 'suspicious':
      return { set: { ...later, status: 'suspicious', problem: found.problem }, newVersion: null };
    case 'unsettled':
      return { set: { ...sooner, status: dataset.status, problem: found.problem }, newVersion: null };
    case 'unchanged':
      if (dataset.version === null) throw new Error('a dataset without a version cannot be unchanged');
      return { set: { ...later, ...well(found) }, newVersion: null };
    case 'changed':
      return { set: { ...later, ...well(found) }, newVersion: versionOf(dataset, found) };
  }
}

const well = ({ skipped, share }: Extract<ScanOutcome, { kind: 'changed' | 'unchanged' }>) =>
  ({ status: 'ok', problem: null, skipped, share }) as const;

/** What was hashed anew and is the same as before is no version. */
function versionOf(
  { version, manifest_digest }: Pick<DatasetRecord, 'version' | 'manifest_digest'>,
  { manifestDigest, files, bytes }: Extract<ScanOutcome, { kind: 'changed' }>,
): ScanPlan['newVersion'] {
  return manifestDigest === manifest_digest ? null : { version: (version ?? 0) + 1, manifest_digest: manifestDigest, files, bytes };
}
