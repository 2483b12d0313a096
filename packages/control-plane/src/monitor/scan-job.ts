/** Messages between the control plane and its scanning child process (child/scan-child.ts). */
import type { ScanOutcome, ScanProgress, ScanRequest } from '../domain/data/scan.ts';

export type ScanJob = ScanRequest & {
  /**
   * Cache file of the dataset. Its folder exists and is on the same file system as `scratchDir`.
   */
  cachePath: string;
  scratchDir: string;
  /** Number of hashing threads. */
  workers: number;
  /** PATH with which to find `find`. */
  searchPath: string;
  /** Interval in ms at which a scan saves its progress during the hashing. */
  keepMs: number;
};

/**
 * Messages to the child. `scan`: starts a scan (one at a time). `pace`: if `gentle`, the child uses
 * at most half of the CPU time.
 */
export type ToChild = { kind: 'scan'; job: ScanJob } | { kind: 'pace'; gentle: boolean };

/**
 * Messages from the child: some progress, then the outcome. `reusable`: the process accepts another
 * scan; otherwise it exits.
 */
export type ChildMessage =
  | { kind: 'progress'; progress: ScanProgress }
  | { kind: 'outcome'; outcome: ScanOutcome; reusable: boolean }
  | { kind: 'failed'; message: string; reusable: false };
