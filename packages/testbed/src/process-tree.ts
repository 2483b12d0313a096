// Finds the processes of a pid namespace, and starts a program inside one that behaves like any
// other process of ours.
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  type Argv,
  isRunning,
  type RunningProcess,
  signalProcess,
  startProcess,
  type StartOptions,
  statOf,
} from './process.ts';
import { GiveUp, waitFor } from './wait.ts';

/** Returns the ids of the processes that a process' first thread started. */
export const childrenOf = (pid: number): number[] =>
  readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').split(' ').filter(Boolean).map(Number);

/** Returns the id of a process' only child, or undefined when it has none yet. */
export const onlyChild = (pid: number): number | undefined => childrenOf(pid)[0];

/**
 * Starts a program that keeps running, through the prefix `enter` that leads into a pid namespace
 * (`nsenter --pid …`). Returns the program itself, because `timeout`, which waits for it, passes on
 * only some signals.
 */
export async function startInside(
  enter: readonly string[],
  argv: Argv,
  options: StartOptions,
): Promise<RunningProcess> {
  // setpriv: the program dies with `timeout`, which dies with this process. --no-fork, and
  // `timeout` without a limit: nsenter would stop itself when its child is stopped (SIGSTOP), and
  // stay stopped when the child continues. It would never read the exit code, so the child would
  // stay listed and its end would not be noticed.
  const [nsenter, ...into] = enter;
  const bound = [
    nsenter,
    '--no-fork',
    ...into,
    'timeout',
    '--foreground',
    '0',
    'setpriv',
    '--pdeathsig',
    'KILL',
    '--',
    ...argv,
  ];
  const outer = await startProcess(bound as unknown as Argv, options);
  const pid = await waitFor(
    `${options.name} has entered its namespace`,
    () => {
      if (outer.exit() !== undefined)
        throw new GiveUp(`the program around it ended:\n${outer.tail()}`);
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

/**
 * Describes processes for a message, one a line: id, state, parent, kernel function in which it
 * waits, and command.
 */
export function describeProcesses(pids: readonly number[]): string {
  return pids.map(describeProcess).join('\n');
}

function describeProcess(pid: number): string {
  const read = (file: string): string => readFileSync(`/proc/${pid}/${file}`, 'utf8');
  try {
    const [state, parent] = statOf(pid);
    // Without root, wchan is 0. An ended process has no command line.
    const command =
      read('cmdline').replaceAll('\0', ' ').trim().slice(0, 200) || `[${read('comm').trim()}]`;
    return `${pid} ${state} parent ${parent} wchan ${read('wchan')} ${command}`;
  } catch (error) {
    return `${pid} ${(error as NodeJS.ErrnoException).code ?? String(error)}`;
  }
}

/**
 * Returns every other process of a process' pid namespace and of the namespaces created inside it
 * (containers). A process that has ended is none of them, although it is listed until its parent
 * reads its exit code. Does not wait between two processes: where a test sends many requests, each
 * wait is a turn of a busy event loop, and hundreds of them outlast the deadline of a power cut.
 */
export function membersOf(pid: number): number[] {
  const wanted = readlinkSync(`/proc/${pid}/ns/pid`);
  const children = new Map<number, number[]>();
  const members = new Set<number>();
  for (const id of readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)) {
    try {
      const parent = Number(statOf(id)[1]);
      children.set(parent, [...(children.get(parent) ?? []), id]);
      if (readlinkSync(`/proc/${id}/ns/pid`) === wanted) members.add(id);
    } catch (error) {
      // A process that ended meanwhile, or that we cannot read, does not belong to the namespace.
      if (!['ENOENT', 'ESRCH', 'EACCES'].includes((error as NodeJS.ErrnoException).code ?? ''))
        throw error;
    }
  }
  // A set grows while it is walked, so this reaches all descendants.
  for (const member of members) for (const child of children.get(member) ?? []) members.add(child);
  members.delete(pid);
  return [...members].filter(isRunning);
}
