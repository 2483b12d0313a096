/**
 * Datasets in the database: the rows themselves, who scans one now, and what scans recorded. Implemented in store/datasets/datasets.ts
 * and store/datasets/dataset-versions.ts, on the same terms as stores.ts.
 */
import type { DatasetCreate, DatasetHistoryRow, DatasetPatch, DatasetState } from '@berth/wire/dataset';
import type { DatasetFact } from './facts.ts';
import type { DatasetRecord, DatasetVersionRecord } from './records.ts';
import type { Guard } from './guard.ts';
import type { NameFilter, Page, Paged } from './page.ts';

/** A tree object of wire/tree.ts: `digest` is `sha256:` of `text`. */
export type TreeObject = { digest: string; text: string };
/** `path` is encoded as in wire/tree.ts. */
export type HistoryEntry = Omit<DatasetHistoryRow, 'at' | 'version'>;
export type HistoryRecord = HistoryEntry & { version: number; at: number };
/** `paths` are encoded; so are `folders`, with `/` at the end: everything below them. `since` and `until` are times (ms); `until` itself is outside. */
export type HistoryFilter = { paths?: readonly string[]; folders?: readonly string[]; version?: number; since?: number; until?: number };

/** A version, but for when it was made. */
export type VersionContent = Pick<DatasetVersionRecord, 'version' | 'files' | 'bytes' | 'manifest_digest'>;

/** What the scan of a dataset changes (flow/dataset.ts). */
export type ScanPlan = {
  set: Pick<DatasetRecord, 'status' | 'problem' | 'last_scanned_at' | 'next_scan_at'> & Partial<Pick<DatasetRecord, 'skipped' | 'share'>>;
  /** Null: the newest version stays the newest. */
  newVersion: VersionContent | null;
};

/** The right to scan one dataset: whoever has it is the only one that records. It ends at `until` unless renewed. */
export type ScanClaim = { token: string; dataset: DatasetRecord };

export type DatasetStore = {
  /** Its first scan is due at once. Throws dataset_name_taken. */
  create(input: DatasetCreate, now: number): Promise<DatasetRecord>;
  /** Throws not_found. */
  get(id: string): Promise<DatasetRecord>;
  /** By name. */
  list(page: Page, filter?: NameFilter): Promise<Paged<DatasetRecord>>;
  /** The id of the dataset with this id, else of the one with this name; null: there is none. */
  idOf(idOrName: string): Promise<string | null>;
  /** All that are not being deleted. */
  facts(): Promise<DatasetFact[]>;
  /** Ids of all that there are, also of those that are being deleted. */
  ids(): Promise<string[]>;
  /** The state of each, and when it was last scanned: what is counted for people who watch. */
  overview(): Promise<{ id: string; name: string; status: DatasetState; last_scanned_at: number | null }[]>;
  /** Only what is given changes; a scan of another folder is due at once. Throws not_found, being_deleted, dataset_name_taken. */
  patch(id: string, patch: DatasetPatch, now: number, guard?: Guard<DatasetRecord>): Promise<DatasetRecord>;
  /** A scan is due at once; during one, another follows it. Throws not_found, being_deleted. */
  requestScan(id: string, asked: { full: boolean; acceptLoss: boolean }, now: number): Promise<DatasetRecord>;
  /** Marks it; repeated: no change. Throws not_found, dataset_in_use (a project or a deployment that is not over names it). */
  markDeleting(id: string, now: number, guard?: Guard<DatasetRecord>): Promise<DatasetRecord>;
  listDeleting(): Promise<DatasetRecord[]>;
  /** With versions, history and tree objects, if it was marked. In short steps. */
  remove(id: string): Promise<void>;

  /**
   * The one that is due longest; null: none. Of several control planes that ask at once one gets it. `until` is by the uptime clock, which
   * is `uptime`; left out: `now`.
   */
  claimDue(token: string, now: number, until: number, uptime?: number): Promise<ScanClaim | null>;
  /** `until` as above. False: the claim is lost, or the dataset is being deleted. */
  renewClaim(claim: ScanClaim, until: number): Promise<boolean>;
  /** Ends the claim with nothing recorded; the dataset is due as before. */
  giveBack(claim: ScanClaim): Promise<void>;
  /**
   * Writes what makes a new version, none of which shows before `finishScan`: tree objects that are new (`objects` reads what the
   * scan made), and the history. What an attempt that did not end has left goes first. False: the claim is lost. Rejects with the
   * signal's reason when that is aborted; `objects` is not called any more after the end.
   */
  record(claim: ScanClaim, content: VersionContent, objects: (digest: string) => Promise<string>, signal: AbortSignal): Promise<boolean>;
  /** Those that there are. At most 1,000 at once. */
  trees(datasetId: string, digests: readonly string[]): Promise<Map<string, string>>;
  /** Makes a new version visible, sets what the scan found and ends the claim, all at once. False: the claim is lost, nothing was done. */
  finishScan(claim: ScanClaim, plan: ScanPlan, now: number): Promise<boolean>;
  /**
   * Forgets versions older than the newest `keep` with their history and tree objects, but for those that a deployment which is
   * not over has or a node says it keeps (`pinned`). Under the claim, in short steps. Gives how many versions went.
   */
  prune(claim: ScanClaim, keep: number): Promise<number>;

  /** Newest first. Throws not_found (dataset). */
  versions(id: string, page: Page): Promise<Paged<DatasetVersionRecord>>;
  /** Newest version first, in it by path. Throws not_found (dataset). */
  history(id: string, filter: HistoryFilter, page: Page): Promise<Paged<HistoryRecord>>;
};
