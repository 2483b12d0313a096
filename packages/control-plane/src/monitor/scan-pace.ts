/** Of the process that scans (scan-child.ts), which is told while people wait for the control plane. */
import type { ChildProcess } from 'node:child_process';
import { createBreather, createPace, isGentle } from '@berth/kit/pace';

export const pace = createPace();
/** For its main thread. */
export const breathe = createBreather(pace);

/** Short to somebody who waits for an answer, long beside what a signal costs. */
const STEP_MS = 2;

/** A program has no steps between which it could rest: it is stopped, and let go on, in turns. Until it ends. */
export function easeProgram(child: ChildProcess): void {
  let stopped = false;
  const turns = setInterval(() => {
    if (!stopped && !isGentle(pace)) return;
    stopped = !stopped;
    child.kill(stopped ? 'SIGSTOP' : 'SIGCONT');
  }, STEP_MS);
  for (const end of ['error', 'exit']) child.once(end, () => clearInterval(turns));
}
