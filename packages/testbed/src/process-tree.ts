// Which processes belong to a pid namespace, and a program in one that can be treated like any other process of ours.
import { readFileSync } from 'node:fs';
import { readdir, readlink } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Argv, type RunningProcess, signalProcess, startProcess, type StartOptions, statOf } from './process.ts';
import { GiveUp, waitFor } from './wait.ts';

/** Process ids of those that a process' first thread has started. */
export const childrenOf = (pid: number): number[] =>
  readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').split(' ').filter(Boolean).map(Number);

/** Process id of a process' only child, undefined when it has none (yet). */
export const onlyChild = (pid: number): number | undefined => childrenOf(pid)[0];

/**
 * Starts a program that stays, through `enter`, a prefix that ends in a pid namespace (`nsenter --pid …`). What is returned is the program
 * itself: nsenter, which waits for it, would die of a signal and not pass it on.
 */
export async function startInside(enter: readonly string[], argv: Argv, options: StartOptions): Promise<RunningProcess> {
  // setpriv: it dies with nsenter, which dies with us.
  const bound = [...enter, 'setpriv', '--pdeathsig', 'KILL', '--', ...argv] as unknown as Argv;
  const outer = await startProcess(bound, options);
  const pid = await waitFor(
    `${options.name} has entered its namespace`,
    () => {
      if (outer.exit() !== undefined) throw new GiveUp(`it could not:\n${outer.tail()}`);
      return onlyChild(outer.pid);
    },
    { deadlineMs: 5_000, intervalMs: 5 },
  );
  const kill = (signal: NodeJS.Signals): void => {
    if (outer.exit() === undefined) signalProcess(pid, signal);
  };
  return {
    ...outer,
    pid,
    kill,
    async stop(graceMs = 5_000) {
      kill('SIGTERM');
      await Promise.race([outer.exited, sleep(graceMs, undefined, { ref: false })]);
      kill('SIGKILL');
      await outer.stop(graceMs);
    },
  };
}

/** Every other process of a process' pid namespace and of the namespaces that were made in it: containers are such. */
export async function membersOf(pid: number): Promise<number[]> {
  const wanted = await readlink(`/proc/${pid}/ns/pid`);
  const children = new Map<number, number[]>();
  const members = new Set<number>();
  for (const id of (await readdir('/proc')).filter((name) => /^\d+$/.test(name)).map(Number)) {
    try {
      const parent = Number(statOf(id)[1]);
      children.set(parent, [...(children.get(parent) ?? []), id]);
      if ((await readlink(`/proc/${id}/ns/pid`)) === wanted) members.add(id);
    } catch (error) {
      // It ended while we looked, or is one we may not look into: then it is not one of ours.
      if (!['ENOENT', 'ESRCH', 'EACCES'].includes((error as NodeJS.ErrnoException).code ?? '')) throw error;
    }
  }
  // A set grows while it is walked: children of children are reached too.
  for (const member of members) for (const child of children.get(member) ?? []) members.add(child);
  members.delete(pid);
  return [...members];
}
