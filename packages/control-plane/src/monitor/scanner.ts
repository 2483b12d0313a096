/**
 * Scans datasets, each in a child process (scan-process.ts). States of a scan: running -> ended
 * (with an outcome) | failed (the process exited without an outcome) | killed (stalled, deadline,
 * aborted, closed); killed -> exited within a second | stuck in the kernel. A dataset with a stuck
 * process is not scanned again until the process exits.
 */
import { randomUUID } from 'node:crypto';
import { chmodSync, existsSync, mkdirSync, readdirSync, rmSync } from 'node:fs';
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type {
  ScanOptions,
  ScanOutcome,
  Scanner,
  ScanRequest,
  ScanResult,
} from '../domain/data/scan.ts';
import type { ScanJob } from './scan-job.ts';
import {
  createScanProcesses,
  EXIT_MS,
  ScanError,
  type ScanProcess,
  ScanProcessGone,
  type ScanProcesses,
} from './scan-process.ts';
import { openTreeFiles } from './scratch.ts';

export type ScannerOptions = {
  /**
   * STATE_DIR of the control plane. The scanner owns the folders `datasets/`, `scans/` and
   * `compile-cache/` in it.
   */
  stateDir: string;
  /** PATH with which to find `find`. */
  searchPath: string;
  /** Number of hashing threads of one scan. */
  workers: number;
  /**
   * Returns whether people wait for an answer of the API; scans then use at most half of the CPU
   * time. Default: never.
   */
  peopleWait?: () => boolean;
  /** A scan without progress for this time in ms is killed. Default 30 s. */
  stallMs?: number;
  /** Maximum duration of a scan in ms. Default 1 day. */
  deadlineMs?: number;
  /** Interval in ms at which a scan saves its progress during the hashing. Default 60 s. */
  keepMs?: number;
  /**
   * How long an idle process is kept for the next scan, in ms. Default 15 min, longer than the
   * default DATASET_SCAN_INTERVAL.
   */
  keepProcessMs?: number;
};

export { ScanError };

const WATCH_MS = 250;
/**
 * Options of private folders: names and checksums of files on the share are private to the control
 * plane.
 */
const PRIVATE = { recursive: true, mode: 0o700 } as const;

export function createScanner({
  stateDir,
  searchPath,
  workers,
  peopleWait = () => false,
  stallMs = 30_000,
  deadlineMs = 86_400_000,
  keepMs = 60_000,
  keepProcessMs = 900_000,
}: ScannerOptions): Scanner {
  const scans = join(stateDir, 'scans');
  const processes = createScanProcesses({
    compileCache: join(stateDir, 'compile-cache'),
    searchPath,
    stateDir,
    keepMs: keepProcessMs,
  });
  makePrivate(stateDir);
  removeLeftovers(scans);
  const running = new Set<AbortController>();
  const leftBehind = new Map<string, ScanProcess>();

  async function scan(
    request: ScanRequest,
    { signal, onProgress }: ScanOptions,
  ): Promise<ScanResult> {
    const cacheDir = cacheDirOf(stateDir, request.datasetId);
    const stuck = leftBehind.get(request.datasetId);
    if (stuck?.isAlive() === true) return { kind: 'unreachable', problem: STUCK };
    leftBehind.delete(request.datasetId);
    const abort = new AbortController();
    const stop = AbortSignal.any([signal, abort.signal]);
    stop.throwIfAborted();

    const scratchDir = join(scans, `${process.pid}-${randomUUID()}`);
    const job: ScanJob = {
      ...request,
      cachePath: join(cacheDir, 'last-scan'),
      scratchDir,
      workers,
      searchPath,
      keepMs,
    };
    running.add(abort);
    let keep = false;
    try {
      await mkdir(cacheDir, PRIVATE);
      await mkdir(scratchDir, PRIVATE);
      const ended = await runChild(job, {
        processes,
        peopleWait,
        stop,
        stallMs,
        deadlineMs,
        onProgress,
      });
      if (ended.left !== null) leftBehind.set(request.datasetId, ended.left);
      stop.throwIfAborted();
      if (ended.outcome.kind !== 'changed') return ended.outcome;
      const trees = await openTreeFiles(scratchDir);
      keep = true;
      return { ...ended.outcome, ...trees };
    } finally {
      running.delete(abort);
      if (!keep) await rm(scratchDir, { recursive: true, force: true });
    }
  }
  return {
    scan,
    forget: (datasetId) => rm(cacheDirOf(stateDir, datasetId), { recursive: true, force: true }),
    async close() {
      const closed = new ScanError('the scanner was closed');
      for (const abort of running) abort.abort(closed);
      await processes.close();
      const until = performance.now() + 2 * EXIT_MS;
      while (running.size > 0 && performance.now() < until)
        await new Promise((resolve) => setTimeout(resolve, 20));
    },
  };
}

const STUCK =
  'The previous scan still hangs in a system call to the share. The next scan starts after ' +
  'that process exits.';

function cacheDirOf(stateDir: string, datasetId: string): string {
  if (!/^[A-Za-z0-9_-]+$/.test(datasetId))
    throw new ScanError(`not a dataset id: ${JSON.stringify(datasetId)}`);
  return join(stateDir, 'datasets', datasetId);
}

/** Creates the state folder, or corrects one that an older version created with mode 0755. */
function makePrivate(stateDir: string): void {
  mkdirSync(stateDir, PRIVATE);
  chmodSync(stateDir, PRIVATE.mode);
}

/** Removes scratch folders of processes that exited. */
function removeLeftovers(scans: string): void {
  mkdirSync(scans, PRIVATE);
  for (const name of readdirSync(scans)) {
    const pid = Number.parseInt(name, 10);
    if (pid === process.pid || !existsSync(`/proc/${pid}`))
      rmSync(join(scans, name), { recursive: true, force: true });
  }
}

type RunChild = {
  processes: ScanProcesses;
  peopleWait: () => boolean;
  stop: AbortSignal;
  stallMs: number;
  deadlineMs: number;
  onProgress: ScanOptions['onProgress'];
};
/** `left`: the process if it could not be killed, otherwise null. */
type Ended = { outcome: ScanOutcome; left: ScanProcess | null };

async function runChild(job: ScanJob, options: RunChild): Promise<Ended> {
  const { processes, peopleWait, stop, stallMs, deadlineMs, onProgress } = options;
  const startedAt = performance.now();
  let movedAt = startedAt;
  const child = processes.take();
  child.pace(peopleWait());
  const ended = child.run(job, (progress) => {
    movedAt = performance.now();
    onProgress?.(progress);
  });
  let timer: NodeJS.Timeout | undefined;
  const overdue = new Promise<'stalled' | 'deadline' | 'stopped'>((resolve) => {
    timer = setInterval(
      () => {
        child.pace(peopleWait());
        if (performance.now() - movedAt > stallMs) resolve('stalled');
        if (performance.now() - startedAt > deadlineMs) resolve('deadline');
      },
      Math.min(WATCH_MS, stallMs / 4),
    );
    if (stop.aborted) resolve('stopped');
    stop.addEventListener('abort', () => resolve('stopped'), { once: true });
  });

  try {
    const how = await Promise.race([ended, overdue]);
    if (typeof how !== 'string') {
      processes.giveBack(child);
      return { outcome: how, left: null };
    }
    const why =
      how === 'stalled'
        ? `made no progress for ${stallMs / 1000} s`
        : `took longer than ${deadlineMs / 1000} s`;
    const problem = `The scan of ${job.nfsPath} ${why} and was killed; the share may hang.`;
    return { outcome: { kind: 'unreachable', problem }, left: (await child.kill()) ? null : child };
  } catch (error) {
    await child.kill();
    // The idle process might have been killed while it was idle. Repeat the scan in a new process.
    if (child.begun === 'before' && error instanceof ScanProcessGone)
      return await runChild(job, options);
    throw error;
  } finally {
    ended.catch(() => undefined);
    clearInterval(timer);
  }
}
