/** Messages between the control plane and its scanning child process (child/scan-child.ts). */
import type { ScanOutcome, ScanProgress, ScanRequest } from '../domain/data/scan.ts';

export type ScanJob = ScanRequest & {
  /** The dataset's cache file; its folder exists and is on one file system with `scratchDir`. */
  cachePath: string;
  scratchDir: string;
  /** Hashing threads. */
  workers: number;
  /** PATH, to find `find`. */
  searchPath: string;
  /** Interval in ms after which a scan that hashes saves its progress. */
  keepMs: number;
};

/** To the child: a scan (one at a time), or whether it leaves half of its time to others. */
export type ToChild = { kind: 'scan'; job: ScanJob } | { kind: 'pace'; gentle: boolean };

/**
 * From the child: progress now and then, then the outcome, and whether the process accepts another
 * scan (else it exits).
 */
export type ChildMessage =
  | { kind: 'progress'; progress: ScanProgress }
  | { kind: 'outcome'; outcome: ScanOutcome; reusable: boolean }
  | { kind: 'failed'; message: string; reusable: false };
