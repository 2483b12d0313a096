/**
 * Linux process groups. A group can outlive its leader if a child of the leader hangs in the
 * kernel.
 */
import { readdirSync, readFileSync } from 'node:fs';

/**
 * Returns whether a process of the group runs. Zombies do not count, because the first process of a
 * container might never reap them.
 */
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
    // After the name in parentheses come state, parent and process group (proc_pid_stat(5)). The
    // name can contain parentheses.
    const [state = '', , of] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return Number(of) === group && !/^[ZX]/.test(state);
  } catch {
    // The process exited in the meantime.
    return false;
  }
}
