// Finds the processes of a pid namespace, and starts a program inside one that behaves like any other process of ours.
import { readFileSync } from 'node:fs';
import { readdir, readlink } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Argv, type RunningProcess, signalProcess, startProcess, type StartOptions, statOf } from './process.ts';
import { GiveUp, waitFor } from './wait.ts';

/** Returns the ids of the processes that a process' first thread started. */
export const childrenOf = (pid: number): number[] =>
  readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').split(' ').filter(Boolean).map(Number);

/** Returns the id of a process' only child, or undefined when it has none yet. */
export const onlyChild = (pid: number): number | undefined => childrenOf(pid)[0];

/**
 * Starts a program that keeps running, through the prefix `enter` that leads into a pid namespace (`nsenter --pid …`). Returns the
 * program itself, because nsenter, which waits for it, dies of a signal and does not pass it on.
 */
export async function startInside(enter: readonly string[], argv: Argv, options: StartOptions): Promise<RunningProcess> {
  // setpriv: the program dies with nsenter, which dies with this process.
  const bound = [...enter, 'setpriv', '--pdeathsig', 'KILL', '--', ...argv] as unknown as Argv;
  const outer = await startProcess(bound, options);
  const pid = await waitFor(
    `${options.name} has entered its namespace`,
    () => {
      if (outer.exit() !== undefined) throw new GiveUp(`nsenter ended:\n${outer.tail()}`);
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

/** Returns every other process of a process' pid namespace and of the namespaces created inside it (containers). */
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
      // The process ended meanwhile, or we may not read it: then it does not belong to the namespace.
      if (!['ENOENT', 'ESRCH', 'EACCES'].includes((error as NodeJS.ErrnoException).code ?? '')) throw error;
    }
  }
  // A set grows while it is walked, so this reaches all descendants.
  for (const member of members) for (const child of children.get(member) ?? []) members.add(child);
  members.delete(pid);
  return [...members];
}
