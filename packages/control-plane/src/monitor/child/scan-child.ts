/**
 * The scan process. Only this process touches the share, because a process that hangs in the kernel
 * can be abandoned and the control plane cannot. It exchanges the messages of ../scan-job.ts and
 * never waits for the control plane.
 */
import { flushCompileCache } from 'node:module';
import { messageOf } from '@berth/kit/message-of';
import { setGentle } from '@berth/kit/pace';
import type { ScanOutcome, ScanProgress } from '../../domain/data/scan.ts';
import type { ChildMessage, ScanJob, ToChild } from '../scan-job.ts';
import { runScan } from './run-scan.ts';
import { pace } from './scan-pace.ts';

const REPORT_MS = 500;
/** Memory limit in bytes: the process exits after a scan that needed more (millions of files). */
const MAX_RSS = 192 * 1024 * 1024;

process.on('disconnect', () => process.exit(1));

const send = (message: ChildMessage, done?: () => void): void =>
  void process.send?.(message, undefined, undefined, done);

async function scan(job: ScanJob): Promise<void> {
  let progress: () => ScanProgress = () => ({ step: 'listing', files: 0, bytes: 0 });
  const reporting = setInterval(() => send({ kind: 'progress', progress: progress() }), REPORT_MS);
  const ended = await runScan(job, (step, files, bytes = () => 0) => {
    progress = () => ({ step, files, bytes: bytes() });
  }).then(
    // Exit after a failure: the state and open files might be wrong.
    (outcome): ChildMessage => ({
      kind: 'outcome',
      outcome,
      reusable: isComplete(outcome) && process.memoryUsage.rss() <= MAX_RSS,
    }),
    (error: unknown): ChildMessage => ({
      kind: 'failed',
      message: messageOf(error),
      reusable: false,
    }),
  );
  clearInterval(reporting);
  const isReusable = ended.kind === 'outcome' && ended.reusable;
  // Exit only after the last message is sent.
  send(ended, () => (isReusable ? flushCompileCache() : process.exit(0)));
}

const isComplete = ({ kind }: ScanOutcome): boolean => kind === 'unchanged' || kind === 'changed';

process.on('message', (message: ToChild) => {
  if (message.kind === 'scan') void scan(message.job);
  else setGentle(pace, message.gentle);
});
