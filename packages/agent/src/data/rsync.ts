/**
 * Copies a list of files from the share into a new folder with rsync, contents and times only.
 * Folders, symlinks and modes come from the manifest (data/staging.ts); checksums verify the result
 * (data/verify.ts).
 */
import { exec, ExecError, type ExecResult } from '@berth/kit/exec';
import { orAbandon } from '../abandon.ts';
import { outputTail, TaskFailure } from '../failures.ts';

export type RsyncSpec = {
  /** Absolute path without a trailing `/`. */
  source: string;
  target: string;
  /** File with the paths below `source` as bytes: each path is `./path` and ends with NUL. */
  list: string;
};
export type RsyncOptions = {
  signal: AbortSignal;
  onBytes: (bytes: number) => void;
};
/**
 * `incomplete`: files are missing, files changed during the copy, or rsync was killed. The
 * verification finds the affected files.
 */
export type RsyncResult =
  | { kind: 'done' }
  | { kind: 'incomplete'; message: string; killed: boolean };
/**
 * Runs rsync. Throws TaskFailure disk_full, dataset_unreachable (stalled, or the share has errors),
 * dataset_copy_failed.
 */
export type Rsync = (spec: RsyncSpec, options: RsyncOptions) => Promise<RsyncResult>;

export type RsyncSettings = {
  inherit: NodeJS.ProcessEnv;
  /** A copy fails after this time in ms without progress. */
  stallMs: number;
  timeoutMs: number;
  /** Value of rsync's --bwlimit. */
  bandwidth: string | undefined;
};

/**
 * Time in ms after which the agent abandons a process that hangs in the kernel and cannot be
 * killed.
 */
const ABANDON_MS = 10_000;
/** Errors of the share as a whole, as opposed to errors of one file. */
const SHARE_ERROR =
  /stale file handle|input\/output error|transport endpoint is not connected|software caused connection abort|connection timed out|host is down|permission denied|operation not permitted|no such device/i;

export function createRsync({ inherit, stallMs, timeoutMs, bandwidth }: RsyncSettings): Rsync {
  return async ({ source, target, list }, { signal, onBytes }) => {
    const stallAbort = new AbortController();
    const stallError = new TaskFailure(
      'dataset_unreachable',
      `the share delivered no data for ${Math.round(stallMs / 1000)} s`,
    );
    const giveUp = (): void => stallAbort.abort(stallError);
    let watchdog = setTimeout(giveUp, stallMs);
    const argv = [
      'rsync',
      `--files-from=${list}`,
      '--from0',
      '--no-implied-dirs',
      '--times',
      '--perms',
      '--chmod=Fa=rX',
      '--whole-file',
    ];
    // Write in place: no other process reads the folder, and an interrupted copy leaves only names
    // from the manifest.
    argv.push(
      '--inplace',
      `--timeout=${Math.max(1, Math.ceil(stallMs / 1000))}`,
      '--info=progress2,flist2,stats0',
      '--no-human-readable',
    );
    argv.push(
      '--outbuf=L',
      ...(bandwidth === undefined ? [] : [`--bwlimit=${bandwidth}`]),
      '--',
      `${source}/`,
      `${target}/`,
    );
    const anyAbort = AbortSignal.any([signal, stallAbort.signal]);
    const work = exec(argv, {
      env: { ...inherit, LC_ALL: 'C' },
      signal: anyAbort,
      timeoutMs,
      // An aborted copy is not needed, so rsync gets only 1 s to exit.
      killAfterMs: 1_000,
      dieWithParent: true,
      carriageReturns: 'end',
      maxOutput: 64 * 1024,
      onLine: (line, stream) => {
        clearTimeout(watchdog);
        watchdog = setTimeout(giveUp, stallMs);
        // Matches a line such as `  1238099  100%  146.38kB/s    0:00:08 (xfr#5, to-chk=169/396)`
        const bytes = stream === 'stdout' ? /^\s*(\d+)\s+\d+%/.exec(line)?.[1] : undefined;
        if (bytes !== undefined) onBytes(Number(bytes));
      },
    });
    try {
      const result = await orAbandon(work, anyAbort, timeoutMs + ABANDON_MS, ABANDON_MS);
      anyAbort.throwIfAborted();
      return readExit(result, timeoutMs);
    } catch (error) {
      if (error instanceof ExecError)
        throw new TaskFailure('dataset_copy_failed', error.message, { cause: error });
      throw error;
    } finally {
      clearTimeout(watchdog);
    }
  };
}

/**
 * Exit codes after one of rsync’s two processes was killed, or the connection between the two
 * broke.
 */
const KILLED = new Set([10, 12, 19, 20, 21, 22]);

/**
 * Reads rsync's exit code: 10 socket I/O (also possible instead of 23 when the share fails), 11
 * file I/O, 23 partial transfer, 24 vanished files, 30 time-out.
 */
export function readExit(result: ExecResult, timeoutMs: number): RsyncResult {
  if (result.code === 0) return { kind: 'done' };
  const message = outputTail(
    result.stderr
      .split('\n')
      .filter((line) => !line.startsWith('rsync error: some files'))
      .join('\n'),
  );
  if (result.ended === 'timeout')
    throw new TaskFailure(
      'dataset_copy_failed',
      `the copy did not finish within ${Math.round(timeoutMs / 1000)} s (COPY_TIMEOUT)`,
    );
  if (/no space left on device|disk quota exceeded/i.test(result.stderr))
    throw new TaskFailure('disk_full', message);
  const shareError = result.stderr.split('\n').findLast((line) => SHARE_ERROR.test(line));
  if (result.code === 30 || shareError !== undefined)
    throw new TaskFailure(
      'dataset_unreachable',
      shareError === undefined ? message : outputTail(shareError),
    );
  const killed = result.code === null || KILLED.has(result.code);
  if (killed || result.code === 23 || result.code === 24)
    return {
      kind: 'incomplete',
      message: message === '' ? `rsync was killed by ${result.signal ?? 'a signal'}` : message,
      killed,
    };
  throw new TaskFailure(
    'dataset_copy_failed',
    `rsync failed with exit code ${result.code}: ${message}`,
  );
}
