/**
 * Decides what a scan means for a dataset: its state and its next version. Pure, like the flow of deployments.
 *
 * The whole way of a dataset, from the share to a container:
 *
 *   scan          monitor/child reads the share ──▶ ScanOutcome (domain/scan.ts)
 *     ▼
 *   version       loops/dataset-monitor.ts ──▶ afterScan (here) ──▶ store/datasets/record-version.ts
 *     ▼
 *   placement     domain/placement.ts chooses the node; flow/tasks.ts creates the deploy task with the pinned versions
 *     ▼
 *   copy          agent/data: staging, rsync, verification, rename
 *     ▼
 *   mount         agent/data/prepare.ts ──▶ agent/tasks/deploy.ts: the container reads the version
 *
 * States:
 *
 *   new ─────────┐ unchanged, changed        ┌─ unreachable: the share cannot be read, or is another one
 *   unreachable ─┼──────────────────▶ ok ────┤
 *   suspicious ──┘                           └─ suspicious: emptied or mostly gone, until it is back or someone accepts the loss
 *
 * A version is recorded only of content that a scan read. Known versions stay when the share cannot be read or has lost most of its
 * files. `unsettled` (files changed during the whole scan) changes no state: `problem` says so, and the next scan comes sooner.
 */
import type { ScanPlan } from '../domain/dataset-stores.ts';
import type { DatasetRecord } from '../domain/records.ts';
import type { ScanOutcome } from '../domain/scan.ts';

/** Time until the next scan of a share that could not be read or that changed all the time; at most the usual interval. */
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
