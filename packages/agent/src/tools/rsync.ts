/**
 * rsync of a list of files from the share into a fresh folder. It brings bytes and times; which files there are, their modes,
 * folders and symlinks follow from the manifest (data/plan.ts), and what arrived is proven by its checksums (data/verify.ts).
 */
import { exec, ExecError, type ExecResult } from '@berth/kit/exec';
import { orAbandon } from '../abandon.ts';
import { lastWords, TaskFailure } from './failures.ts';

export type RsyncSpec = {
  /** Absolute; without a `/` at the end. */
  source: string;
  target: string;
  /** Paths below `source`, as bytes, each `./path` and ended by NUL. */
  list: string;
};
export type RsyncOptions = {
  signal: AbortSignal;
  onBytes: (bytes: number) => void;
};
/** `incomplete`: some files are missing or changed while they were read, or somebody `killed` it. The checksums say which. */
export type RsyncResult = { kind: 'done' } | { kind: 'incomplete'; said: string; killed: boolean };
/** TaskFailure disk_full, dataset_unreachable (it stands still, or the share gives errors), dataset_copy_failed. */
export type Rsync = (spec: RsyncSpec, options: RsyncOptions) => Promise<RsyncResult>;

export type RsyncSettings = {
  inherit: NodeJS.ProcessEnv;
  /** Without any progress for so long it is given up. */
  stallMs: number;
  timeoutMs: number;
  /** As rsync's --bwlimit takes it. */
  bandwidth: string | undefined;
};

/** A reading process that hangs in the kernel cannot be killed: it is waited for so long and then left behind. */
const ABANDON_MS = 10_000;
/** What the share says of itself, as against what a file says. */
const SHARE_IS_ILL =
  /stale file handle|input\/output error|transport endpoint is not connected|software caused connection abort|connection timed out|host is down|permission denied|operation not permitted|no such device/i;

export function createRsync({ inherit, stallMs, timeoutMs, bandwidth }: RsyncSettings): Rsync {
  return async ({ source, target, list }, { signal, onBytes }) => {
    const stalled = new AbortController();
    const stall = new TaskFailure('dataset_unreachable', `nothing could be read for ${Math.round(stallMs / 1000)} s`);
    const giveUp = (): void => stalled.abort(stall);
    let watchdog = setTimeout(giveUp, stallMs);
    const argv = ['rsync', `--files-from=${list}`, '--from0', '--no-implied-dirs', '--times', '--perms', '--chmod=Fa=rX', '--whole-file'];
    // In place: nobody else sees the folder, and what an end in the middle leaves has the name of a file of the manifest.
    argv.push('--inplace', `--timeout=${Math.max(1, Math.ceil(stallMs / 1000))}`, '--info=progress2,flist2,stats0', '--no-human-readable');
    argv.push('--outbuf=L', ...(bandwidth === undefined ? [] : [`--bwlimit=${bandwidth}`]), '--', `${source}/`, `${target}/`);
    const either = AbortSignal.any([signal, stalled.signal]);
    const work = exec(argv, {
      env: { ...inherit, LC_ALL: 'C' },
      signal: either,
      timeoutMs,
      // Nobody needs what it would still do.
      killAfterMs: 1_000,
      dieWithParent: true,
      carriageReturns: true,
      keep: 64 * 1024,
      onLine: (line, stream) => {
        clearTimeout(watchdog);
        watchdog = setTimeout(giveUp, stallMs);
        // `  1238099  100%  146.38kB/s    0:00:08 (xfr#5, to-chk=169/396)`
        const bytes = stream === 'stdout' ? /^\s*(\d+)\s+\d+%/.exec(line)?.[1] : undefined;
        if (bytes !== undefined) onBytes(Number(bytes));
      },
    });
    try {
      const result = await orAbandon(work, either, timeoutMs + ABANDON_MS, ABANDON_MS);
      either.throwIfAborted();
      return read(result, timeoutMs);
    } catch (error) {
      if (error instanceof ExecError) throw new TaskFailure('dataset_copy_failed', error.message, { cause: error });
      throw error;
    } finally {
      clearTimeout(watchdog);
    }
  };
}

/** One of its processes was ended by a signal, or found its peer gone. */
const KILLED = new Set([10, 12, 19, 20, 21, 22]);

/** Its exit codes: 10 socket I/O (its peer is gone, which may come before the 23 of a share that died), 11 file I/O, 23 partial, 24 vanished, 30 time-out. */
export function read(result: ExecResult, timeoutMs: number): RsyncResult {
  if (result.code === 0) return { kind: 'done' };
  const said = lastWords(
    result.stderr
      .split('\n')
      .filter((line) => !line.startsWith('rsync error: some files'))
      .join('\n'),
  );
  if (result.ended === 'timeout') throw new TaskFailure('dataset_copy_failed', `not done after ${Math.round(timeoutMs / 1000)} s`);
  if (/no space left on device|disk quota exceeded/i.test(result.stderr)) throw new TaskFailure('disk_full', said);
  const ill = result.stderr.split('\n').findLast((line) => SHARE_IS_ILL.test(line));
  if (result.code === 30 || ill !== undefined) throw new TaskFailure('dataset_unreachable', ill === undefined ? said : lastWords(ill));
  const killed = result.code === null || KILLED.has(result.code);
  if (killed || result.code === 23 || result.code === 24)
    return { kind: 'incomplete', said: said === '' ? `rsync was ended by ${result.signal ?? 'a signal'}` : said, killed };
  throw new TaskFailure('dataset_copy_failed', `rsync ended with ${result.code}: ${said}`);
}
