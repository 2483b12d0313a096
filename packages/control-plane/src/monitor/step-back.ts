/**
 * Lowers the CPU priority of scans: people and agents wait for the control plane, but not for a
 * scan.
 */
import { existsSync, writeFileSync } from 'node:fs';
import { setPriority } from 'node:os';

const NICE = 10;

/**
 * Lowers the priority of a process. `pid`: a session leader that has just started; its threads and
 * children inherit the priority. With Linux's autogroups (sched(7), "The autogroup feature"), a
 * priority counts only within the session's group, so the group's priority is lowered too.
 */
export function stepBack(pid: number): void {
  try {
    setPriority(pid, NICE);
    const group = `/proc/${pid}/autogroup`;
    if (existsSync(group)) writeFileSync(group, String(NICE));
  } catch {
    // The process has exited, or the kernel refuses: it limits changes of a group to one in 100 ms.
    // The scan runs anyway.
  }
}
