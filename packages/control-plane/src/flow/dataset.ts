/**
 * Decides the state and the next version of a dataset after a scan. Pure.
 *
 * The path of a dataset from the share to a container:
 *
 *   scan          monitor/child reads the share ──▶ ScanOutcome (domain/data/scan.ts)
 *     ▼
 *   version       loops/dataset-monitor.ts ──▶ afterScan (here) ──▶ store/datasets/record-version.ts
 *     ▼
 *   placement     domain/nodes/placement.ts chooses the node; flow/tasks.ts creates the deploy task with the pinned versions
 *     ▼
 *   copy          agent/data: staging, rsync, verification, rename
 *     ▼
 *   mount         agent/data/prepare.ts ──▶ agent/tasks/deploy.ts: the container reads the version
 *
 * States:
 *
 *   new ─────────┐ unchanged, changed        ┌─ unreachable: the share cannot be read, or another share is mounted
 *   unreachable ─┼──────────────────▶ ok ────┤
 *   suspicious ──┘                           └─ suspicious: emptied or mostly gone, until it is back or someone accepts the loss
 *
 * Only content that a scan has read becomes a version. Known versions stay when the share cannot be
 * read or has lost most of its files. The outcome `changing` (files changed during the whole scan)
 * keeps the state: it sets `problem`, and the next scan starts sooner.
 */
import type { ScanPlan } from '../domain/data/dataset-stores.ts';
import type { DatasetRecord } from '../domain/platform/records.ts';
import type { ScanOutcome } from '../domain/data/scan.ts';

/**
 * Time in ms until the next scan of a share that was unreachable or kept changing. The usual
 * interval is the maximum.
 */
const SOON_MS = 60_000;

export function afterScan(
  dataset: Pick<DatasetRecord, 'status' | 'version' | 'manifest_digest'>,
  outcome: ScanOutcome,
  at: { now: number; intervalMs: number },
): ScanPlan {
  const later = { last_scanned_at: at.now, next_scan_at: at.now + at.intervalMs };
  const sooner = {
    last_scanned_at: at.now,
    next_scan_at: at.now + Math.min(at.intervalMs, SOON_MS),
  };
  switch (outcome.kind) {
    case 'unreachable':
      return {
        set: { ...sooner, status: 'unreachable', problem: outcome.problem },
        newVersion: null,
      };
    case 'suspicious':
      // Store the share too: if a person accepts that files are lost, this share becomes the known
      // share.
      return {
        set: { ...later, status: 'suspicious', problem: outcome.problem, share: outcome.share },
        newVersion: null,
      };
    case 'changing':
      return {
        set: { ...sooner, status: dataset.status, problem: outcome.problem },
        newVersion: null,
      };
    case 'unchanged':
      if (dataset.version === null)
        throw new Error('a dataset without a version cannot be unchanged');
      return { set: { ...later, ...ok(outcome) }, newVersion: null };
    case 'changed':
      return { set: { ...later, ...ok(outcome) }, newVersion: versionOf(dataset, outcome) };
  }
}

const ok = ({ skipped, share }: Extract<ScanOutcome, { kind: 'changed' | 'unchanged' }>) =>
  ({ status: 'ok', problem: null, skipped, share }) as const;

/**
 * Returns the next version, or null if the scan hashed all files again and the content is
 * unchanged.
 */
function versionOf(
  { version, manifest_digest }: Pick<DatasetRecord, 'version' | 'manifest_digest'>,
  { manifestDigest, files, bytes }: Extract<ScanOutcome, { kind: 'changed' }>,
): ScanPlan['newVersion'] {
  return manifestDigest === manifest_digest
    ? null
    : { version: (version ?? 0) + 1, manifest_digest: manifestDigest, files, bytes };
}
