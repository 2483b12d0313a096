/** CPU limit of the scan process (scan-child.ts). It applies while people wait for an answer of the API. */
import type { ChildProcess } from 'node:child_process';
import { createBreather, createPace, isGentle } from '@berth/kit/pace';

export const pace = createPace();
/** For the main thread. */
export const breathe = createBreather(pace);

/** Short for a person who waits, long compared to the cost of a signal. */
const STEP_MS = 1;
/** Poll interval while the limit is off. */
const POLL_MS = 50;

/** Limits a program that cannot pause itself: SIGSTOP and SIGCONT in turns until it exits. */
export function easeProgram(child: ChildProcess): void {
  let stopped = false;
  let next: NodeJS.Timeout;
  const turn = (): void => {
    const eased = stopped || isGentle(pace);
    if (eased) {
      stopped = !stopped;
      child.kill(stopped ? 'SIGSTOP' : 'SIGCONT');
    }
    next = setTimeout(turn, eased ? STEP_MS : POLL_MS);
  };
  next = setTimeout(turn, STEP_MS);
  for (const end of ['error', 'exit']) child.once(end, () => clearTimeout(next));
}
