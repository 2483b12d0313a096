/** Linux: who of a process group is still there. Its leader may be gone while what it started hangs in the kernel. */
import { readdirSync, readFileSync } from 'node:fs';

/** Whether anything of it runs. What has ended and was not asked for its exit code (the first process of a container may never ask) does not. */
export function groupRuns(group: number): boolean {
  try {
    process.kill(-group, 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== 'ESRCH';
  }
  return readdirSync('/proc').some((name) => /^\d+$/.test(name) && isMember(name, group));
}

function isMember(pid: string, group: number): boolean {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    // proc_pid_stat(5): the name in parentheses may hold anything; behind it state, parent, process group.
    const [state = '', , of] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return Number(of) === group && !/^[ZX]/.test(state);
  } catch {
    // It ended meanwhile.
    return false;
  }
}
