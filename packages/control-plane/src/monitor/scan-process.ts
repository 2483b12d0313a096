/**
 * A process that scans (scan-child.ts), one dataset after the other: idle -> scanning (`run`) -> idle | ended (it says so with its
 * outcome, or it was killed). To begin one costs the control plane, whose whole memory is marked for copying, some 10 ms in which
 * it answers nobody, and a short scan most of its time: so one that is through is kept for the next scan for a while.
 */
import { spawn } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { dyingWithParent } from '@berth/kit/exec';
import type { ScanOutcome, ScanProgress } from '../domain/scan.ts';
import { groupRuns } from './process-group.ts';
import type { ChildMessage, ScanJob, ToChild } from './scan-job.ts';
import { stepBack } from './step-back.ts';

/** The scanner itself failed: nothing can be said about the dataset. */
export class ScanError extends Error {
  override name = 'ScanError';
}

/** The process ended without an outcome, or did not begin. */
export class ScanProcessGone extends ScanError {
  override name = 'ScanProcessGone';
}

export type ScanProcess = {
  /** Resolves when it has said how the scan ended; rejects with ScanError. `onMoved` at each progress. */
  run(job: ScanJob, onMoved: (progress: ScanProgress) => void): Promise<ScanOutcome>;
  /** Gentle: it leaves half of the time that it could have to others. */
  pace(gentle: boolean): void;
  /** Also when only something that it started is left of it. */
  isAlive(): boolean;
  /** Another scan may be given to it. */
  isReady(): boolean;
  /** With all that it started. False: it is still there after a second, and nobody waits for it any more. */
  kill(): Promise<boolean>;
};

export type ScanProcesses = {
  /** One that waits for work, or a new one. */
  take(): ScanProcess & { begun: 'before' | 'now' };
  /** It is through with what it was taken for. */
  giveBack(process: ScanProcess): void;
  close(): Promise<void>;
};

const CHILD = fileURLToPath(new URL('./child/scan-child.ts', import.meta.url));
/** Few collections (the young generation begins at a megabyte), and each on one core: on all at once they leave none to who waits for an answer. */
const V8_OPTIONS = ['--min-semi-space-size=8', '--single-threaded-gc', '--v8-pool-size=1'];
/** A process that is not gone this long after SIGKILL hangs in the kernel. */
export const EXIT_MS = 1_000;
/** How often it is looked whether it is gone: where only what it started is left, that reads all of /proc. */
const LOOK_MS = 50;
const MOST_ERRORS = 8_192;

type Options = {
  /** Where Node keeps what it made of our TypeScript: else that is most of a first scan. */
  compileCache: string;
  searchPath: string;
  /** Shown to whoever lists processes: whose it is. */
  stateDir: string;
  /** How long one is kept that has nothing to do. */
  keepMs: number;
};

/** At most one is kept: scans at once are rare. */
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
        // It ends by itself, and soon.
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
  const [program = '', ...args] = dyingWithParent([process.execPath, ...V8_OPTIONS, CHILD, stateDir]);
  const child = spawn(program, args, {
    detached: true,
    stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
    env: { PATH: searchPath, NODE_COMPILE_CACHE: compileCache },
  });
  // From outside: by its own hand only once Node has begun in it, which would be a good part of a short scan.
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
  // Only while it scans is it a reason for this process to stay.
  const hold = (held: boolean): void => {
    for (const handle of [child, child.channel, errors as (typeof errors & { ref(): void; unref(): void }) | null]) {
      if (held) handle?.ref();
      else handle?.unref();
    }
  };
  let why = 'it is gone';
  child.once('error', (error) => {
    why = `cannot start the scan: ${error.message}`;
    onEnd(new ScanProcessGone(why, { cause: error }));
  });
  child.once('close', (code, signal) => {
    why = `the scan ended without an outcome (${code ?? signal}): ${said.trim()}`;
    onEnd(new ScanProcessGone(why));
  });
  let killed = false;
  const isItself = (): boolean => child.pid !== undefined && child.exitCode === null && child.signalCode === null;
  // It is gone at once while its `find` hangs in the kernel: each scan would leave another one there.
  const isAlive = (): boolean => isItself() || (killed && child.pid !== undefined && groupRuns(child.pid));

  const send = (message: ToChild): void => {
    // That it could not be told is told by its end.
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
        leaving = message.kind !== 'progress' && !message.again;
        if (message.kind === 'outcome') return resolve(message.outcome);
        if (message.kind === 'failed') return reject(new ScanError(`the scan failed: ${message.message}`));
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
      while (isAlive() && performance.now() < until) await sleep(LOOK_MS);
      const gone = !isAlive();
      errors?.destroy();
      if (child.connected) child.disconnect();
      child.unref();
      return gone;
    },
  };
}
