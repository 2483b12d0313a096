/**
 * The child process that scans (child/scan-child.ts). It scans one dataset at a time: idle ->
 * scanning (`run`) -> idle | ended. A fork stops the control plane for about 10 ms and takes most
 * of the time of a short scan, so an idle process is kept for the next scan.
 */
import { spawn } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { dyingWithParent } from '@berth/kit/exec';
import type { ScanOutcome, ScanProgress } from '../domain/data/scan.ts';
import { groupRuns } from './process-group.ts';
import type { ChildMessage, ScanJob, ToChild } from './scan-job.ts';
import { stepBack } from './step-back.ts';

/** Thrown if the scanner failed; the state of the dataset is unknown. */
export class ScanError extends Error {
  override name = 'ScanError';
}

/** Thrown if the process exited without an outcome or did not start. */
export class ScanProcessGone extends ScanError {
  override name = 'ScanProcessGone';
}

export type ScanProcess = {
  /**
   * Runs a scan. Resolves with its outcome; rejects with ScanError. Calls `onMoved` on progress.
   */
  run(job: ScanJob, onMoved: (progress: ScanProgress) => void): Promise<ScanOutcome>;
  /** Sets the pace. `gentle`: the process uses at most half of the CPU time. */
  pace(gentle: boolean): void;
  /** Returns whether the process, or only a child of it (`find`), is alive. */
  isAlive(): boolean;
  /** Returns whether the process accepts another scan. */
  isReady(): boolean;
  /**
   * Kills the process and its children. Resolves with false if one of them still exists after 1 s.
   */
  kill(): Promise<boolean>;
};

export type ScanProcesses = {
  /** Returns the idle process, or starts a new one. */
  take(): ScanProcess & { begun: 'before' | 'now' };
  /** Takes back a process after its scan. */
  giveBack(process: ScanProcess): void;
  close(): Promise<void>;
};

const CHILD = fileURLToPath(new URL('./child/scan-child.ts', import.meta.url));
/**
 * Use a larger young generation, which needs fewer collections, and collect on one core, which
 * leaves the other cores to the API.
 */
const V8_OPTIONS = ['--min-semi-space-size=8', '--single-threaded-gc', '--v8-pool-size=1'];
/**
 * Time in ms after SIGKILL after which a process that has not exited counts as stuck in the kernel.
 */
export const EXIT_MS = 1_000;
/** Poll interval for the exit in ms. A poll can read all of /proc. */
const EXIT_POLL_MS = 50;
const MOST_ERRORS = 8_192;

type Options = {
  /** Folder of Node's compile cache. Without the cache, most of a first scan is compilation. */
  compileCache: string;
  searchPath: string;
  /** Folder that process lists show, to distinguish the processes of two control planes. */
  stateDir: string;
  /** How long to keep an idle process, in ms. */
  keepMs: number;
};

/**
 * Creates the pool of scan processes. It keeps at most one idle process, because concurrent scans
 * are rare.
 */
export function createScanProcesses(options: Options): ScanProcesses {
  let idle: ScanProcess | null = null;
  let late: NodeJS.Timeout | undefined;
  let closed = false;
  const end = async (): Promise<void> => {
    clearTimeout(late);
    const ending = idle;
    idle = null;
    await ending?.kill();
  };
  return {
    take() {
      clearTimeout(late);
      const waiting = idle;
      idle = null;
      if (waiting?.isReady() === true) return { ...waiting, begun: 'before' };
      return { ...startScanProcess(options), begun: 'now' };
    },
    giveBack(process) {
      if (!process.isReady()) {
        // The process must exit by itself; kill it if it does not.
        setTimeout(() => process.isAlive() && void process.kill(), EXIT_MS).unref();
      } else if (closed || idle !== null) {
        void process.kill();
      } else {
        idle = process;
        late = setTimeout(() => void end(), options.keepMs).unref();
      }
    },
    async close() {
      closed = true;
      await end();
    },
  };
}

function startScanProcess({ compileCache, searchPath, stateDir }: Options): ScanProcess {
  const [program = '', ...args] = dyingWithParent([
    process.execPath,
    ...V8_OPTIONS,
    CHILD,
    stateDir,
  ]);
  const child = spawn(program, args, {
    detached: true,
    stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
    env: { PATH: searchPath, NODE_COMPILE_CACHE: compileCache },
  });
  // Lower the priority from outside: the child could do it only after Node has started, which is a
  // large part of a short scan.
  if (child.pid !== undefined) stepBack(child.pid);
  const errors = child.stderr;
  let said = '';
  let leaving = false;
  errors?.setEncoding('utf8').on('data', (text: string) => {
    said = (said + text).slice(-MOST_ERRORS);
  });
  let onMessage: (message: ChildMessage) => void = () => {};
  let onEnd: (error: ScanError) => void = () => {};
  child.on('message', (message: ChildMessage) => onMessage(message));
  // Let only a running scan keep the control plane alive.
  const hold = (held: boolean): void => {
    for (const handle of [
      child,
      child.channel,
      errors as (typeof errors & { ref(): void; unref(): void }) | null,
    ]) {
      if (held) handle?.ref();
      else handle?.unref();
    }
  };
  let why = 'the scan process exited';
  child.once('error', (error) => {
    why = `cannot start the scan process: ${error.message}`;
    onEnd(new ScanProcessGone(why, { cause: error }));
  });
  child.once('close', (code, signal) => {
    why = `the scan process exited without an outcome (${code ?? signal}): ${said.trim()}`;
    onEnd(new ScanProcessGone(why));
  });
  let killed = false;
  const isItself = (): boolean =>
    child.pid !== undefined && child.exitCode === null && child.signalCode === null;
  // A killed process exits at once, but its `find` might hang in the kernel, and each new scan
  // would add another one.
  const isAlive = (): boolean =>
    isItself() || (killed && child.pid !== undefined && groupRuns(child.pid));

  const send = (message: ToChild): void => {
    // Ignore the error: the exit of the child reports it.
    if (child.connected) child.send(message, () => {});
  };
  let gentle = false;

  return {
    isAlive,
    isReady: () => isItself() && !killed && !leaving,
    async run(job, onMoved) {
      const { promise: ended, resolve, reject } = Promise.withResolvers<ScanOutcome>();
      said = '';
      let last = '';
      onEnd = reject;
      onMessage = (message) => {
        leaving = message.kind !== 'progress' && !message.reusable;
        if (message.kind === 'outcome') return resolve(message.outcome);
        if (message.kind === 'failed')
          return reject(new ScanError(`the scan failed: ${message.message}`));
        const text = JSON.stringify(message.progress);
        if (text === last) return;
        last = text;
        onMoved(message.progress);
      };
      hold(true);
      try {
        if (!child.connected && !isItself()) throw new ScanProcessGone(why);
        send({ kind: 'scan', job });
        return await ended;
      } finally {
        [onMessage, onEnd] = [() => {}, () => {}];
        hold(false);
      }
    },
    pace(asked) {
      if (asked === gentle) return;
      gentle = asked;
      send({ kind: 'pace', gentle });
    },
    async kill() {
      killed = true;
      if (child.pid !== undefined) {
        try {
          process.kill(-child.pid, 'SIGKILL');
        } catch (error) {
          if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
        }
      }
      const until = performance.now() + EXIT_MS;
      while (isAlive() && performance.now() < until) await sleep(EXIT_POLL_MS);
      const gone = !isAlive();
      errors?.destroy();
      if (child.connected) child.disconnect();
      child.unref();
      return gone;
    },
  };
}
