/** Request and result of a scan of a dataset's folder. Implemented in monitor/scanner.ts. */
import type { Skipped } from '@berth/wire/dataset';
import type { ShareIdentity } from '../platform/records.ts';

export type ScanRequest = {
  datasetId: string;
  /** Absolute path from DATASET_NFS_BASE_PATH. */
  basePath: string;
  /** Folder below `basePath`. Checked when the dataset is created and again by each scan. */
  nfsPath: string;
  /** True to hash every file again. */
  full: boolean;
  /** Newest version; null before the first scan. */
  previous: { manifestDigest: string; files: number; bytes: number } | null;
  /** Identity of the share at the last scan; null accepts any share and records it. */
  share: ShareIdentity | null;
  /**
   * True if a person accepted the current content: the scan then records even an emptied folder,
   * but only if the share is still the same one.
   */
  acceptLoss: boolean;
};

/** `problem`: human-readable text. Paths in `skipped` are encoded as in wire/tree.ts. */
export type ScanOutcome =
  | { kind: 'unchanged'; files: number; bytes: number; skipped: Skipped; share: ShareIdentity }
  | {
      kind: 'changed';
      manifestDigest: string;
      files: number;
      bytes: number;
      skipped: Skipped;
      share: ShareIdentity;
    }
  /** The base or the folder cannot be read or is on another share, so its content is unknown. */
  | { kind: 'unreachable'; problem: string }
  /**
   * The folder is empty or lost more than half of its files. No version is recorded until the files
   * return or a person accepts that they are lost.
   */
  | { kind: 'suspicious'; problem: string; files: number; bytes: number; share: ShareIdentity }
  /**
   * Files kept changing during the scan. A version would mix states that never existed together.
   */
  | { kind: 'changing'; problem: string };

/** Tree objects of changed content, in a scratch folder until `dispose`. */
export type ScannedTrees = {
  /** Returns the text of the object with this digest. Rejects if the scan wrote no such object. */
  objects(digest: string): Promise<string>;
  dispose(): Promise<void>;
};
export type ScanResult =
  | Exclude<ScanOutcome, { kind: 'changed' }>
  | (Extract<ScanOutcome, { kind: 'changed' }> & ScannedTrees);

/** Progress of a scan. The counts never decrease within a step. */
export type ScanProgress = {
  step: 'listing' | 'hashing' | 'building';
  files: number;
  bytes: number;
};

export type ScanOptions = { signal: AbortSignal; onProgress?: (progress: ScanProgress) => void };

export type Scanner = {
  /**
   * Scans a dataset. Rejects with the signal's reason on abort, and with ScanError if the scanner
   * itself failed (no `find`, no room in the state folder); the state of the dataset is then
   * unknown.
   */
  scan(request: ScanRequest, options: ScanOptions): Promise<ScanResult>;
  /** Removes the scan cache of a deleted dataset. */
  forget(datasetId: string): Promise<void>;
  /** Aborts running scans. */
  close(): Promise<void>;
};
