/**
 * The child process of a scan: all that touches the share happens here, since a process that hangs in the kernel can be left
 * behind and the control plane cannot. Its job is its argument, JSON; it reports by messages, which never make it wait.
 */
import type { ScanOutcome, ScanProgress } from '../domain/scan.ts';
import { runScan, type ScanJob } from './run-scan.ts';

/** What it sends: progress now and then, then how it ended. */
export type ChildMessage =
  | { kind: 'progress'; progress: ScanProgress }
  | { kind: 'outcome'; outcome: ScanOutcome }
  | { kind: 'failed'; message: string };

const REPORT_MS = 500;

process.on('disconnect', () => process.exit(1));

let progress: () => ScanProgress = () => ({ step: 'listing', files: 0, bytes: 0 });
const tell = (message: ChildMessage, done?: () => void): void => void process.send?.(message, undefined, undefined, done);
const reporting = setInterval(() => tell({ kind: 'progress', progress: progress() }), REPORT_MS);

const job = JSON.parse(process.argv[2] ?? '') as ScanJob;
void runScan(job, (step, files, bytes = () => 0) => {
  progress = () => ({ step, files, bytes: bytes() });
})
  .then(
    (outcome): ChildMessage => ({ kind: 'outcome', outcome }),
    (error: unknown): ChildMessage => ({ kind: 'failed', message: error instanceof Error ? error.message : String(error) }),
  )
  .then((message) => {
    clearInterval(reporting);
    // What it says last has arrived before it goes.
    tell(message, () => process.exit(0));
  });
