/** Converts records of datasets, versions and history to their JSON form in the API. */
import type {
  Dataset,
  DatasetHistoryRow,
  DatasetStanding,
  DatasetVersion,
} from '@berth/wire/dataset';
import { displayPath } from '@berth/wire/tree';
import type { HistoryRecord } from '../domain/data/dataset-stores.ts';
import type { DatasetRecord, DatasetVersionRecord } from '../domain/platform/records.ts';
import { time } from './views.ts';

const timeOrNull = (ms: number | null): string | null => (ms === null ? null : time(ms));
const isScanning = (d: DatasetRecord): boolean =>
  d.scan_requested_at !== null || d.scanning_by !== null;

export const datasetView = (d: DatasetRecord): Dataset => ({
  id: d.id,
  name: d.name,
  nfs_path: d.nfs_path,
  status: d.status,
  problem: d.problem,
  version: d.version,
  manifest_digest: d.manifest_digest,
  bytes: d.bytes,
  files: d.files,
  skipped: {
    ...d.skipped,
    first: d.skipped.first.map((s) => ({ ...s, path: displayPath(s.path) })),
  },
  scanning: isScanning(d),
  deleting: d.deleting_at !== null,
  last_scanned_at: timeOrNull(d.last_scanned_at),
  created_at: time(d.created_at),
  updated_at: time(d.updated_at),
});

export const standingView = (d: DatasetRecord): DatasetStanding => ({
  dataset_id: d.id,
  name: d.name,
  nfs_path: d.nfs_path,
  version: d.version,
  manifest_digest: d.manifest_digest,
  bytes: d.bytes,
  files: d.files,
  status: d.status,
  problem: d.problem,
  scanning: isScanning(d),
  last_scanned_at: timeOrNull(d.last_scanned_at),
});

export const versionView = (v: DatasetVersionRecord): DatasetVersion => ({
  version: v.version,
  created_at: time(v.created_at),
  files: v.files,
  bytes: v.bytes,
  manifest_digest: v.manifest_digest,
});

export const historyView = (h: HistoryRecord): DatasetHistoryRow => ({
  at: time(h.at),
  version: h.version,
  path: displayPath(h.path),
  change: h.change,
  size: h.size,
  checksum: h.checksum,
  previous_checksum: h.previous_checksum,
});
