import { type ChildProcess, spawn } from 'node:child_process';
import { createWriteStream, readFileSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import type { Readable } from 'node:stream';
import { defined } from '@berth/kit/defined';
import { messageOf } from '@berth/kit/message-of';
import { childEnvironment, type Environment, findProgram } from './config.ts';
import { GiveUp, waitFor } from './wait.ts';

/** A program and its arguments; never shell text. */
export type Argv = readonly [program: string, ...args: string[]];

export interface Finished {
  /** Exit code; null when a signal ended it. */
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

export class ProcessFailed extends Error {
  override readonly name = 'ProcessFailed';
  readonly argv: Argv;
  readonly result: Finished;
  constructor(argv: Argv, result: Finished, reason?: string) {
    const how =
      reason ?? (result.code === null ? `killed by ${result.signal}` : `exit ${result.code}`);
    const last = lastLines(result.stderr || result.stdout, 12);
    super(`${argv.join(' ')}: ${how}${last === '' ? '' : `\n${last}`}`);
    this.argv = argv;
    this.result = result;
  }
}

export interface RunOptions {
  readonly cwd?: string;
  /** Variables added to childEnvironment(). */
  readonly env?: Environment;
  /** Text, bytes or a stream for stdin (default: empty). */
  readonly input?: string | Uint8Array | Readable;
  /** Sends SIGKILL after this many ms (default 60,000). */
  readonly deadlineMs?: number;
  /** true: a non-zero exit is returned, not thrown. A missed deadline always throws. */
  readonly mayFail?: boolean;
  readonly signal?: AbortSignal;
}

/** Runs a program to its end and returns its output as text. @throws ProcessFailed */
export async function run(argv: Argv, options: RunOptions = {}): Promise<Finished> {
  const [program, ...args] = argv;
  const deadlineMs = options.deadlineMs ?? 60_000;
  const child = spawn(program, args, {
    cwd: options.cwd,
    env: childEnvironment(options.env),
    stdio: [options.input === undefined ? 'ignore' : 'pipe', 'pipe', 'pipe'],
    killSignal: 'SIGKILL',
    ...defined({ signal: options.signal }),
  });
  let late = false;
  const timer = setTimeout(() => {
    late = true;
    child.kill('SIGKILL');
    // A grandchild can keep the pipes open; without this, 'close' would never come.
    child.stdout?.destroy();
    child.stderr?.destroy();
  }, deadlineMs);
  const out: Buffer[] = [];
  const err: Buffer[] = [];
  child.stdout?.on('data', (chunk: Buffer) => out.push(chunk));
  child.stderr?.on('data', (chunk: Buffer) => err.push(chunk));
  if (child.stdin && options.input !== undefined) {
    // EPIPE: the program did not read all of its input. Its exit code shows whether that matters.
    child.stdin.on('error', () => undefined);
    if (typeof options.input === 'string' || options.input instanceof Uint8Array)
      child.stdin.end(options.input);
    else options.input.pipe(child.stdin);
  }
  try {
    const result = await new Promise<Finished>((resolve, reject) => {
      child.once('error', reject);
      child.once('close', (code, signal) =>
        resolve({
          code,
          signal,
          stdout: Buffer.concat(out).toString(),
          stderr: Buffer.concat(err).toString(),
        }),
      );
    });
    if (late) throw new ProcessFailed(argv, result, `timed out after ${deadlineMs} ms`);
    if (result.code !== 0 && options.mayFail !== true) throw new ProcessFailed(argv, result);
    return result;
  } finally {
    clearTimeout(timer);
  }
}

export interface StartOptions {
  /** Name in messages, for example `registry`. */
  readonly name: string;
  readonly cwd?: string;
  readonly env?: Environment;
  /** Withholds our own variables with this prefix, which the program would read as its settings. */
  readonly withoutEnv?: string;
  /** File to which all output is appended. */
  readonly logFile?: string;
  /** Called with each chunk of output. */
  readonly onOutput?: (text: string) => void;
}

export interface RunningProcess {
  readonly name: string;
  readonly pid: number;
  /** How it ended; undefined while it runs. */
  exit(): { code: number | null; signal: NodeJS.Signals | null } | undefined;
  readonly exited: Promise<void>;
  /** Returns the last part of its output (at most 16 KiB). */
  tail(): string;
  kill(signal: NodeJS.Signals): void;
  /**
   * Sends SIGTERM, and SIGKILL to its process group after `graceMs` (default 5,000). Idempotent.
   */
  stop(graceMs?: number): Promise<void>;
}

/**
 * Starts a program that keeps running. It leads its own process group, so a Ctrl-C at the terminal
 * does not reach it before this process has cleaned up. The kernel kills it when this process dies,
 * even by SIGKILL. (The kernel watches the thread that started it: use vitest's `forks` pool, not
 * `threads`.)
 */
export async function startProcess(argv: Argv, options: StartOptions): Promise<RunningProcess> {
  const setpriv = findProgram('setpriv');
  const bound: Argv =
    setpriv === undefined ? argv : [setpriv, '--pdeathsig', 'KILL', '--', ...argv];
  const [program, ...args] = bound;
  const child = spawn(program, args, {
    cwd: options.cwd,
    env: without(childEnvironment(options.env), options.withoutEnv),
    stdio: ['ignore', 'pipe', 'pipe'],
    // Without setpriv, a detached child would outlive this process, so it stays in our group.
    detached: setpriv !== undefined,
  });
  await started(child, argv);
  const pid = child.pid as number;
  const log =
    options.logFile === undefined ? undefined : createWriteStream(options.logFile, { flags: 'a' });
  log?.on('error', (error) =>
    options.onOutput?.(`cannot write ${options.logFile}: ${error.message}\n`),
  );
  let tail = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream?.on('data', (chunk: Buffer) => {
      const text = chunk.toString();
      tail = (tail + text).slice(-16_384);
      log?.write(chunk);
      options.onOutput?.(text);
    });
  }
  let ended: { code: number | null; signal: NodeJS.Signals | null } | undefined;
  const exited = new Promise<void>((resolve) => {
    child.once('exit', (code, signal) => {
      ended = { code, signal };
      log?.end();
      resolve();
    });
  });
  return {
    name: options.name,
    pid,
    exit: () => ended,
    exited,
    tail: () => tail,
    kill: (signal) => signalProcess(pid, signal),
    async stop(graceMs = 5_000) {
      if (ended === undefined) {
        signalProcess(pid, 'SIGTERM');
        const timer = setTimeout(
          () => signalProcess(setpriv === undefined ? pid : -pid, 'SIGKILL'),
          graceMs,
        );
        await exited;
        clearTimeout(timer);
      }
      // Kill the children that it left running.
      if (setpriv !== undefined) signalProcess(-pid, 'SIGKILL');
    },
  };
}

/**
 * Returns the fields of proc_pid_stat(5) from the third on: state, parent, … The name before can
 * contain spaces and parentheses.
 */
export function statOf(pid: number): string[] {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  return stat.slice(stat.lastIndexOf(')') + 2).split(' ');
}

/** Flag of include/linux/sched.h: the process has ended, and only its entry is left. */
const PF_EXITING = 0x4;

/**
 * Whether this process runs. An ended process stays listed until its parent reads its exit code. A
 * first process that is no init (for example in a container) never reads the exit codes of orphans,
 * which count as ended all the same. The first process of a pid namespace is then listed as exiting
 * for ever, because it waits for such an orphan.
 */
export function isRunning(pid: number): boolean {
  try {
    const [state = '', , , , , , flags] = statOf(pid);
    return !/^[ZX]/.test(state) && (Number(flags) & PF_EXITING) === 0;
  } catch (error) {
    if (['ENOENT', 'ESRCH'].includes((error as NodeJS.ErrnoException).code ?? '')) return false;
    throw error;
  }
}

/**
 * Returns the ids of the processes whose command line matches. A process that ended without its
 * exit code being read has none.
 */
export async function processesOf(isOne: (argv: readonly string[]) => boolean): Promise<number[]> {
  const pids: number[] = [];
  for (const pid of (await readdir('/proc')).filter((name) => /^\d+$/.test(name))) {
    // The process can have ended meanwhile.
    const argv = (await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')).split('\0');
    if (isOne(argv)) pids.push(Number(pid));
  }
  return pids;
}

/** Sends a signal; ignores a process that is gone already. */
export function signalProcess(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

/** Waits for `ready`. Fails at once with the last output when the process ends before that. */
export async function untilReady(
  running: RunningProcess,
  ready: () => Promise<boolean>,
  deadlineMs: number,
): Promise<void> {
  try {
    await waitFor(
      `${running.name} answers`,
      () => {
        const exit = running.exit();
        if (exit !== undefined) throw new GiveUp(`it ended with ${exit.code ?? exit.signal}`);
        return ready();
      },
      { deadlineMs },
    );
  } catch (error) {
    await running.stop(1_000);
    throw new Error(`${messageOf(error)}\n${lastLines(running.tail(), 20)}`, {
      cause: error,
    });
  }
}

function without(env: Record<string, string>, prefix: string | undefined): Record<string, string> {
  if (prefix === undefined) return env;
  return Object.fromEntries(Object.entries(env).filter(([name]) => !name.startsWith(prefix)));
}

function started(child: ChildProcess, argv: Argv): Promise<void> {
  return new Promise((resolve, reject) => {
    child.once('spawn', resolve);
    child.once('error', (error) =>
      reject(new Error(`cannot start ${argv[0]}: ${error.message}`, { cause: error })),
    );
  });
}

export function lastLines(text: string, count: number): string {
  return text.trimEnd().split('\n').slice(-count).join('\n');
}
