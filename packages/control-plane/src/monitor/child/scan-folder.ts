/** The folder of one scan, as run-scan.ts opens it and scan-state.ts reads it. */
import type { ScanProgress } from '../../domain/data/scan.ts';
import type { ShareIdentity } from '../../domain/platform/records.ts';
import type { ScanJob } from '../scan-job.ts';
import type { Listing } from './listing.ts';

/**
 * Reports progress. `bytes` can be called at any time, because a large file makes no other
 * progress.
 */
export type OnStep = (step: ScanProgress['step'], files: number, bytes?: () => number) => void;

/** A listing and the path of its file. */
export type Listed = { listing: Listing; path: string };

/** A folder on an identified share. */
export type ScanFolder = {
  job: ScanJob;
  /** Real path of the folder. */
  root: string;
  /** Writes a new listing to its own file in the scratch folder. */
  list: () => Promise<Listed>;
  /**
   * Checks that the share is the same as at the beginning of the scan. Throws
   * ShareUnreachableError.
   */
  checkShare: () => ShareIdentity;
  onStep: OnStep;
};
