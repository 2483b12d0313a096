/**
 * A share that can hang, get lost, and be mounted again. bindfs exports a folder through FUSE, so the kernel waits for a program as it
 * waits for a file server. Two of them are chained:
 *
 *   server ──bindfs──> behind ──bindfs──> at
 *
 * If the second one is stopped, a call waits in the kernel and a kill ends it, unless bindfs had already accepted the call. If the first
 * one is stopped, the second one has accepted the call and never answers: the caller cannot be killed (state D), as with the worst servers.
 */
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { findProgram } from './config.ts';
import { type Argv, type RunningProcess, run, signalProcess, startProcess, statOf, untilReady } from './process.ts';
import { messageOf, waitFor } from './wait.ts';

export interface FuseShareOptions {
  /** The folder that is shown, as it is on the server. */
  readonly server: string;
  /** Where it is mounted. */
  readonly at: string;
  /** A folder of ours to mount it in between. */
  readonly behind: string;
  readonly readOnly?: boolean;
  /** Bytes a second that can be read. */
  readonly readRate?: number;
}

/** How it hangs: whether its callers can be killed. */
export type Hang = 'killable' | 'unkillable';

/** Whether this process waits, so that it cannot be killed, for an answer that a share hung 'unkillable' has begun and does not end. */
export const waitsForAnswer = (pid: number): boolean => {
  try {
    return readFileSync(`/proc/${pid}/wchan`, 'utf8') === 'request_wait_answer';
  } catch {
    // It ended meanwhile.
    return false;
  }
};

export interface FuseShare {
  /** As mountinfo(5) names what is mounted at `at`. */
  readonly source: string;
  /** After it resolves, calls are no longer accepted (`killable`) or no longer answered (`unkillable`). */
  hang(how: Hang): Promise<void>;
  resume(): void;
  /** The file system's process dies: ENOTCONN. */
  kill(): Promise<void>;
  unmount(): Promise<void>;
  /** After `kill` or `unmount`. */
  mountAgain(): Promise<void>;
  /** Releases every process that hangs in it. */
  end(): Promise<void>;
}

/** Why there can be none on this machine. */
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
    // A container may have the device and not the right to mount.
    return messageOf(error).replaceAll('\n', ' ');
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}

export async function startFuseShare({ server, at, behind, readOnly, readRate }: FuseShareOptions): Promise<FuseShare> {
  const options = [...(readOnly === true ? ['-r'] : []), ...(readRate === undefined ? [] : [`--read-rate=${readRate}`])];
  const inner = await mounted([server, behind]);
  // One thread for each call: else those behind the first one would not be taken, and could be killed.
  const front = (): Promise<RunningProcess> => mounted([behind, at], ['--multithreaded', ...options]);
  let outer = await front().catch(async (error: unknown) => {
    await unmount(inner, behind);
    throw error;
  });
  const resume = (): void => {
    for (const { pid, exit } of [inner, outer]) if (exit() === undefined) signalProcess(pid, 'SIGCONT');
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

/** A signal stops the thread that takes it, and that one the others: until then they go on taking calls. */
async function pause(pid: number): Promise<void> {
  signalProcess(pid, 'SIGSTOP');
  const threads = (): number[] => readdirSync(`/proc/${pid}/task`).map(Number);
  await waitFor('every thread of bindfs is stopped', () => threads().every((id) => statOf(id)[0] === 'T'), { intervalMs: 1 });
}

/** Answers that the kernel has cached and still gives while the share hangs. */
const NOTHING_CACHED = 'attr_timeout=0,entry_timeout=0,negative_timeout=0';

async function mounted([folder, at]: readonly [string, string], options: readonly string[] = []): Promise<RunningProcess> {
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

/** The process first: with it goes what hangs in the file system, and what is left is only a name. */
async function unmount(daemon: RunningProcess, at: string): Promise<void> {
  if (daemon.exit() === undefined) daemon.kill('SIGKILL');
  await daemon.exited;
  if (isMounted(at)) await run(['umount', '--lazy', at]);
}
