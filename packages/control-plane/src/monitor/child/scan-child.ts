/**
 * A process that scans: all that touches the share happens here, since a process that hangs in the kernel can be left behind and the
 * control plane cannot. It is told by messages, and reports by messages, which never make it wait.
 */
import { flushCompileCache } from 'node:module';
import { setGentle } from '@berth/kit/pace';
import type { ScanOutcome, ScanProgress } from '../../domain/scan.ts';
import type { ChildMessage, ScanJob, ToChild } from '../scan-job.ts';
import { runScan } from './run-scan.ts';
import { pace } from './scan-pace.ts';

const REPORT_MS = 500;
/** After a scan of millions of files it gives its memory back by ending. */
const MOST_RSS = 192 * 1024 * 1024;

process.on('disconnect', () => process.exit(1));

const tell = (message: ChildMessage, done?: () => void): void => void process.send?.(message, undefined, undefined, done);

async function scan(job: ScanJob): Promise<void> {
  let progress: () => ScanProgress = () => ({ step: 'listing', files: 0, bytes: 0 });
  const reporting = setInterval(() => tell({ kind: 'progress', progress: progress() }), REPORT_MS);
  const ended = await runScan(job, (step, files, bytes = () => 0) => {
    progress = () => ({ step, files, bytes: bytes() });
  }).then(
    // What went wrong may be our own doing, and what it has open with it.
    (outcome): ChildMessage => ({ kind: 'outcome', outcome, again: isGood(outcome) && process.memoryUsage.rss() <= MOST_RSS }),
    (error: unknown): ChildMessage => ({ kind: 'failed', message: error instanceof Error ? error.message : String(error), again: false }),
  );
  clearInterval(reporting);
  const again = ended.kind === 'outcome' && ended.again;
  // What it says last has arrived before it goes.
  tell(ended, () => (again ? flushCompileCache() : process.exit(0)));
}

const isGood = ({ kind }: ScanOutcome): boolean => kind === 'unchanged' || kind === 'changed';

process.on('message', (message: ToChild) => {
  if (message.kind === 'scan') void scan(message.job);
  else setGentle(pace, message.gentle);
});
