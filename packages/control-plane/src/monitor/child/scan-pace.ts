/** Of the process that scans (scan-child.ts), which is told while people wait for the control plane. */
import type { ChildProcess } from 'node:child_process';
import { createBreather, createPace, isGentle } from '@berth/kit/pace';

export const pace = createPace();
/** For its main thread. */
export const breathe = createBreather(pace);

/** Short to somebody who waits for an answer, long beside what a signal costs. */
const STEP_MS = 1;
/** How often it is looked whether that is asked, where it is not: a scan alone is not to be held up by looks. */
const LOOK_MS = 50;

/** A program has no steps between which it could rest: it is stopped, and let go on, in turns. Until it ends. */
export function easeProgram(child: ChildProcess): void {
  let stopped = false;
  let next: NodeJS.Timeout;
  const turn = (): void => {
    const eased = stopped || isGentle(pace);
    if (eased) {
      stopped = !stopped;
      child.kill(stopped ? 'SIGSTOP' : 'SIGCONT');
    }
    next = setTimeout(turn, eased ? STEP_MS : LOOK_MS);
  };
  next = setTimeout(turn, STEP_MS);
  for (const end of ['error', 'exit']) child.once(end, () => clearTimeout(next));
}
