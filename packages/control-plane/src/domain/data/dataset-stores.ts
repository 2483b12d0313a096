/**
 * Stores of datasets: rows, scan claims, and recorded versions. Implemented in
 * store/datasets/datasets.ts and store/datasets/dataset-versions.ts. Each method runs its
 * own transaction, and names its rule and the codes of DomainError that it throws.
 */
import type {
  DatasetCreate,
  DatasetHistoryRow,
  DatasetPatch,
  DatasetState,
} from '@berth/wire/dataset';
import type { ProjectAccess } from '../identity/access.ts';
import type { DatasetFact } from '../deployments/facts.ts';
import type { DatasetRecord, DatasetVersionRecord } from '../platform/records.ts';
import type { RecordGuard } from '../platform/record-change.ts';
import type { NameFilter, Page, Paged } from '../platform/page.ts';

/** A tree object of wire/tree.ts: `digest` is `sha256:` of `text`. */
export type TreeObject = { digest: string; text: string };
/** `path` is encoded as in wire/tree.ts. */
export type HistoryEntry = Omit<DatasetHistoryRow, 'at' | 'version'>;
export type HistoryRecord = HistoryEntry & { version: number; at: number };
/**
 * `paths`, `folders`: encoded; a folder ends with `/` and includes everything below it. `since`
 * (inclusive), `until` (exclusive): ms since the epoch.
 */
export type HistoryFilter = {
  paths?: readonly string[];
  folders?: readonly string[];
  version?: number;
  since?: number;
  until?: number;
};

/** A version without its creation time. */
export type VersionContent = Pick<
  DatasetVersionRecord,
  'version' | 'files' | 'bytes' | 'manifest_digest'
>;

/** Changes to a dataset after a scan (flow/dataset.ts). */
export type ScanPlan = {
  set: Pick<DatasetRecord, 'status' | 'problem' | 'last_scanned_at' | 'next_scan_at'> &
    Partial<Pick<DatasetRecord, 'skipped' | 'share'>>;
  /** Null if the scan found no new version. */
  newVersion: VersionContent | null;
};

/** Exclusive right to scan a dataset and record its versions. Expires at `until` unless renewed. */
export type ScanClaim = { token: string; dataset: DatasetRecord };

export type DatasetStore = {
  /** Creates a dataset; its first scan is due at once. Throws dataset_name_taken. */
  create(input: DatasetCreate, now: number): Promise<DatasetRecord>;
  /** Throws not_found. */
  get(id: string): Promise<DatasetRecord>;
  /** Lists datasets by name. */
  list(page: Page, filter?: NameFilter): Promise<Paged<DatasetRecord>>;
  /** Returns the id of the dataset with this id, else with this name, else null. */
  idOf(idOrName: string): Promise<string | null>;
  /** Returns all datasets that are not being deleted. */
  facts(): Promise<DatasetFact[]>;
  /** Returns the ids of all datasets, including those that are being deleted. */
  ids(): Promise<string[]>;
  /** Returns the state and the last scan of each dataset, for metrics. */
  overview(): Promise<
    { id: string; name: string; status: DatasetState; last_scanned_at: number | null }[]
  >;
  /**
   * Changes the given fields. Changing the folder makes a scan due at once. Throws not_found,
   * being_deleted, dataset_name_taken.
   */
  patch(
    id: string,
    patch: DatasetPatch,
    now: number,
    guard?: RecordGuard<DatasetRecord>,
    access?: ProjectAccess,
  ): Promise<DatasetRecord>;
  /**
   * Makes a scan due at once, or after the current scan. Throws not_found, being_deleted,
   * wrong_state (`acceptLoss` while the share is unreadable or a different share is mounted in its
   * place).
   */
  requestScan(
    id: string,
    asked: { full: boolean; acceptLoss: boolean; acceptShare?: boolean },
    now: number,
  ): Promise<DatasetRecord>;
  /**
   * Marks the dataset for deletion. Idempotent. Throws not_found, dataset_in_use (a project or a
   * deployment that is not terminal uses it).
   */
  markDeleting(
    id: string,
    now: number,
    guard?: RecordGuard<DatasetRecord>,
    access?: ProjectAccess,
  ): Promise<DatasetRecord>;
  listDeleting(): Promise<DatasetRecord[]>;
  /**
   * Removes a marked dataset with its versions, history and tree objects, in short transactions.
   */
  remove(id: string): Promise<void>;

  /**
   * Claims the dataset that has been due longest, or returns null. Only one control plane can hold
   * the claim. `until` is a time of the uptime clock; `uptime` is its current value (default:
   * `now`).
   */
  claimDue(token: string, now: number, until: number, uptime?: number): Promise<ScanClaim | null>;
  /** Renews the claim. Returns false if the claim is lost or the dataset is being deleted. */
  renewClaim(claim: ScanClaim, until: number): Promise<boolean>;
  /** Ends the claim without recording a scan; the dataset stays due. */
  giveBack(claim: ScanClaim): Promise<void>;
  /**
   * Writes the new tree objects (`objects` reads them from the scan) and the history of a new
   * version. Both become visible only with `finishScan`. First removes leftovers of an unfinished
   * attempt. Returns false if the claim is lost. Rejects with the signal's reason on abort and does
   * not call `objects` after that.
   */
  record(
    claim: ScanClaim,
    content: VersionContent,
    objects: (digest: string) => Promise<string>,
    signal: AbortSignal,
  ): Promise<boolean>;
  /** Returns the existing tree objects; missing digests are skipped. At most 1,000 digests. */
  trees(datasetId: string, digests: readonly string[]): Promise<Map<string, string>>;
  /**
   * Publishes a new version, sets the result of the scan and ends the claim, in one transaction.
   * Returns false if the claim is lost.
   */
  finishScan(claim: ScanClaim, plan: ScanPlan, now: number): Promise<boolean>;
  /**
   * Removes versions older than the newest `keep` versions, with their history and tree objects.
   * Keeps versions that a non-terminal deployment uses or that a node reports as `pinned`. Needs
   * the claim and runs in short transactions. Returns the number of removed versions.
   */
  prune(claim: ScanClaim, keep: number): Promise<number>;

  /** Lists the versions, newest first. Throws not_found (dataset). */
  versions(id: string, page: Page): Promise<Paged<DatasetVersionRecord>>;
  /** Returns the requested versions that exist. Throws not_found (dataset). */
  versionsOf(id: string, versions: readonly number[]): Promise<DatasetVersionRecord[]>;
  /** Lists the file changes, newest version first, then by path. Throws not_found (dataset). */
  history(id: string, filter: HistoryFilter, page: Page): Promise<Paged<HistoryRecord>>;
};
