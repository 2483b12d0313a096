/** What is asked of a scan of a dataset's folder and what it found. Implemented in monitor/scanner.ts. */
import type { Skipped } from '@berth/wire/dataset';
import type { ShareIdentity } from './records.ts';

export type ScanRequest = {
  datasetId: string;
  /** DATASET_NFS_BASE_PATH; absolute. */
  basePath: string;
  /** Below it; checked when the dataset was made, and looked at again here. */
  nfsPath: string;
  /** Hash every file again. */
  full: boolean;
  /** The newest version; null: there is none yet. */
  previous: { manifestDigest: string; files: number; bytes: number } | null;
  /** What the last scan said the share was; null: record what is seen. */
  share: ShareIdentity | null;
  /** A person said that what is there now is right: an emptied folder is recorded, and another share is taken for the right one. */
  acceptLoss: boolean;
};

/** `problem` is a sentence for people. Paths in `skipped` are encoded as in wire/tree.ts. */
export type ScanOutcome =
  | { kind: 'unchanged'; files: number; bytes: number; skipped: Skipped; share: ShareIdentity }
  | { kind: 'changed'; manifestDigest: string; files: number; bytes: number; skipped: Skipped; share: ShareIdentity }
  /** The base or the folder cannot be read, or is not what it was: nothing is known of the state now. */
  | { kind: 'unreachable'; problem: string }
  /** Emptied, or more than half of the files gone: nothing is recorded until it is back or somebody accepts the loss. */
  | { kind: 'suspicious'; problem: string; files: number; bytes: number }
  /** It was written all the time: no version is made of a state that never was. */
  | { kind: 'unsettled'; problem: string };

/** The tree objects of a changed state, in a scratch folder until `dispose`. */
export type ScannedTrees = {
  /** The text of the object with this digest. Rejects when the scan wrote none such. */
  objects(digest: string): Promise<string>;
  dispose(): Promise<void>;
};
export type ScanResult = Exclude<ScanOutcome, { kind: 'changed' }> | (Extract<ScanOutcome, { kind: 'changed' }> & ScannedTrees);

/** How far a scan is; each number only rises within one of its steps. */
export type ScanProgress = { step: 'listing' | 'hashing' | 'building'; files: number; bytes: number };

export type ScanOptions = { signal: AbortSignal; onProgress?: (progress: ScanProgress) => void };

export type Scanner = {
  /**
   * Rejects with the signal's reason when it is aborted, and with ScanError when the scanner itself failed (no `find`, no
   * room in the state folder): then nothing can be said about the dataset.
   */
  scan(request: ScanRequest, options: ScanOptions): Promise<ScanResult>;
  /** Removes what is kept of a dataset between scans: it was deleted. */
  forget(datasetId: string): Promise<void>;
  /** Ends what is under way. */
  close(): Promise<void>;
};
