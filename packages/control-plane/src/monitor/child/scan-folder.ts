/** The folder of one scan, as run-scan.ts opens it and scan-state.ts reads it. */
import type { ScanProgress } from '../../domain/data/scan.ts';
import type { ShareIdentity } from '../../domain/platform/records.ts';
import type { ScanJob } from '../scan-job.ts';
import type { Listing } from './listing.ts';

/** `bytes` can be called at any time: a large file makes no other progress. */
export type OnStep = (step: ScanProgress['step'], files: number, bytes?: () => number) => void;

/** A listing and the path of its file. */
export type Listed = { listing: Listing; path: string };

/** A folder whose share was identified. */
export type ScanFolder = {
  job: ScanJob;
  /** Real path. */
  root: string;
  /** Writes each listing to a file of its own in the scratch folder. */
  list: () => Promise<Listed>;
  /**
   * Checks that the share is still the one with which the scan began. Throws ShareUnreachableError.
   */
  checkShare: () => ShareIdentity;
  onStep: OnStep;
};
