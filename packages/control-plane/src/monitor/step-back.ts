/** A scan's processor time is what others leave: people and agents wait for the control plane, nobody waits for a scan. */
import { existsSync, writeFileSync } from 'node:fs';
import { setPriority } from 'node:os';

const NICE = 10;

/**
 * For a process that leads a session of its own and has just begun: what it starts, threads too, is as low as it. Where Linux
 * groups what shares a session (sched(7), "The autogroup feature"), a priority counts within the group only, so that the
 * group is what must step back.
 */
export function stepBack(pid: number): void {
  try {
    setPriority(pid, NICE);
    const group = `/proc/${pid}/autogroup`;
    if (existsSync(group)) writeFileSync(group, String(NICE));
  } catch {
    // It is gone already, or the system does not let us (the group's is refused twice within 100 ms): a scan it is all the same.
  }
}
