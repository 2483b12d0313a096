/**
 * A share that a test can hang, lose and mount again. bindfs shows a folder by FUSE, so that the
 * kernel waits for bindfs as it waits for a file server. Two bindfs run in a row:
 *
 *   server ──bindfs──> behind ──bindfs──> at
 *
 * While the second one is stopped, a call waits in the kernel and a kill ends it, except a call
 * that bindfs had accepted already. While the first one is stopped, the second one has accepted the
 * call and never answers. The calling process cannot be killed (state D), like with the worst file
 * servers.
 */
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { findProgram } from './config.ts';
import {
  type Argv,
  type RunningProcess,
  run,
  signalProcess,
  startProcess,
  statOf,
  untilReady,
} from './process.ts';
import { messageWithCause, waitFor } from './wait.ts';

export interface FuseShareOptions {
  /** The folder that is shown, as it is on the server. */
  readonly server: string;
  /** The folder at which it is mounted. */
  readonly at: string;
  /** A folder for the mount in between. */
  readonly behind: string;
  readonly readOnly?: boolean;
  /** Read rate in bytes per second. */
  readonly readRate?: number;
}

/** Whether processes that call the hung share can be killed. */
export type Hang = 'killable' | 'unkillable';

/**
 * Whether this process waits, unkillable, for an answer that a share hung as 'unkillable' never
 * finishes.
 */
export const waitsForAnswer = (pid: number): boolean => {
  try {
    return readFileSync(`/proc/${pid}/wchan`, 'utf8') === 'request_wait_answer';
  } catch {
    // The process ended meanwhile.
    return false;
  }
};

export interface FuseShare {
  /** Source of the mount at `at`, as mountinfo(5) names it. */
  readonly source: string;
  /**
   * Hangs the share. After it resolves, no call is accepted (`killable`), or none is answered
   * (`unkillable`).
   */
  hang(how: Hang): Promise<void>;
  resume(): void;
  /** Kills the file system's process: calls fail with ENOTCONN. */
  kill(): Promise<void>;
  unmount(): Promise<void>;
  /** Mounts the share again after `kill` or `unmount`. */
  mountAgain(): Promise<void>;
  /** Ends the share. Processes that hang in it continue. */
  end(): Promise<void>;
}

/** Returns why this machine cannot provide such a share. */
export async function missingForFuse(): Promise<string | undefined> {
  if (process.getuid?.() !== 0) return 'only root mounts file systems';
  if (!existsSync('/dev/fuse')) return 'this system has no /dev/fuse';
  if (findProgram('bindfs') === undefined) return 'bindfs is not installed';
  const dir = mkdtempSync(join(tmpdir(), 'berth-can-'));
  try {
    const probe = await mounted([join(dir, 'server'), join(dir, 'at')]);
    await unmount(probe, join(dir, 'at'));
    return undefined;
  } catch (error) {
    // A container can have the device and lack the permission to mount.
    return messageWithCause(error).replaceAll('\n', ' ');
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}

export async function startFuseShare({
  server,
  at,
  behind,
  readOnly,
  readRate,
}: FuseShareOptions): Promise<FuseShare> {
  const options = [
    ...(readOnly === true ? ['-r'] : []),
    ...(readRate === undefined ? [] : [`--read-rate=${readRate}`]),
  ];
  const inner = await mounted([server, behind]);
  // One thread for each call: otherwise calls behind the first one would not be accepted, and could
  // be killed.
  const front = (): Promise<RunningProcess> =>
    mounted([behind, at], ['--multithreaded', ...options]);
  let outer = await front().catch(async (error: unknown) => {
    await unmount(inner, behind);
    throw error;
  });
  const resume = (): void => {
    for (const { pid, exit } of [inner, outer])
      if (exit() === undefined) signalProcess(pid, 'SIGCONT');
  };
  return {
    source: behind,
    hang: (how) => pause(how === 'killable' ? outer.pid : inner.pid),
    resume,
    async kill() {
      outer.kill('SIGKILL');
      await outer.exited;
    },
    unmount: () => unmount(outer, at),
    async mountAgain() {
      await unmount(outer, at);
      outer = await front();
    },
    async end() {
      resume();
      await unmount(outer, at);
      await unmount(inner, behind);
    },
  };
}

/**
 * Stops all threads. The signal stops the thread that receives it, which stops the others; until
 * then they accept calls.
 */
async function pause(pid: number): Promise<void> {
  signalProcess(pid, 'SIGSTOP');
  const threads = (): number[] => readdirSync(`/proc/${pid}/task`).map(Number);
  await waitFor(
    'every thread of bindfs is stopped',
    () => threads().every((id) => statOf(id)[0] === 'T'),
    { intervalMs: 1 },
  );
}

/** Mount options that turn caches off: the kernel would answer from them while the share hangs. */
const NOTHING_CACHED = 'attr_timeout=0,entry_timeout=0,negative_timeout=0';

async function mounted(
  [folder, at]: readonly [string, string],
  options: readonly string[] = [],
): Promise<RunningProcess> {
  for (const path of [folder, at]) mkdirSync(path, { recursive: true });
  const argv: Argv = ['bindfs', '-f', '-o', NOTHING_CACHED, ...options, folder, at];
  const daemon = await startProcess(argv, { name: 'bindfs' });
  try {
    await untilReady(daemon, async () => isMounted(at), 5_000);
  } catch (error) {
    await unmount(daemon, at);
    throw error;
  }
  return daemon;
}

const isMounted = (at: string): boolean =>
  readFileSync('/proc/self/mountinfo', 'utf8')
    .split('\n')
    .some((line) => line.split(' ')[4] === at);

/**
 * Unmounts: first ends the process, which also frees the calls that hang in the file system, then
 * removes the mount point's name.
 */
async function unmount(daemon: RunningProcess, at: string): Promise<void> {
  if (daemon.exit() === undefined) daemon.kill('SIGKILL');
  await daemon.exited;
  if (isMounted(at)) await run(['umount', '--lazy', at]);
}
