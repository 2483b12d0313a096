/**
 * Scans of datasets, each in a child process (scan-process.ts). What may happen to one:
 * running -> ended (it said its outcome) | failed (it died without one) | killed (no progress, too long, aborted, closed);
 * killed -> gone within a second | left behind: it hangs in the kernel, and until it is gone its dataset is not scanned again.
 */
import { randomUUID } from 'node:crypto';
import { chmodSync, existsSync, mkdirSync, readdirSync, rmSync } from 'node:fs';
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { ScanOptions, ScanOutcome, Scanner, ScanRequest, ScanResult } from '../domain/scan.ts';
import type { ScanJob } from './scan-job.ts';
import { createScanProcesses, EXIT_MS, ScanError, type ScanProcess, ScanProcessGone, type ScanProcesses } from './scan-process.ts';
import { openTreeFiles } from './scratch.ts';

export type ScannerOptions = {
  /** Of the control plane; `datasets/`, `scans/` and `compile-cache/` in it are ours. */
  stateDir: string;
  /** PATH, where `find` is looked for. */
  searchPath: string;
  /** Hashing threads of one scan. */
  workers: number;
  /** Whether people wait for the control plane: a scan leaves them half of the time that it could have. Default: they never do. */
  peopleWait?: () => boolean;
  /** How long a scan may make no progress at all. Default 30 s. */
  stallMs?: number;
  /** How long a scan may take. Default a day. */
  deadlineMs?: number;
  /** How often a scan that hashes keeps what it has, for the next one should it be ended. Default a minute. */
  keepMs?: number;
  /** How long a process that scanned is kept for the next scan. Default 15 min: longer than the default DATASET_SCAN_INTERVAL. */
  keepProcessMs?: number;
};

export { ScanError };

const LOOK_MS = 250;
/** Names and sums of files on the share are for the control plane alone. */
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
  const processes = createScanProcesses({ compileCache: join(stateDir, 'compile-cache'), searchPath, stateDir, keepMs: keepProcessMs });
  makePrivate(stateDir);
  removeLeftovers(scans);
  const running = new Set<AbortController>();
  const leftBehind = new Map<string, ScanProcess>();

  async function scan(request: ScanRequest, { signal, onProgress }: ScanOptions): Promise<ScanResult> {
    const cacheDir = cacheDirOf(stateDir, request.datasetId);
    const stuck = leftBehind.get(request.datasetId);
    if (stuck?.isAlive() === true) return { kind: 'unreachable', problem: STUCK };
    leftBehind.delete(request.datasetId);
    const abort = new AbortController();
    const stop = AbortSignal.any([signal, abort.signal]);
    stop.throwIfAborted();

    const scratchDir = join(scans, `${process.pid}-${randomUUID()}`);
    const job: ScanJob = { ...request, cachePath: join(cacheDir, 'last-scan'), scratchDir, workers, searchPath, keepMs };
    running.add(abort);
    let keep = false;
    try {
      await mkdir(cacheDir, PRIVATE);
      await mkdir(scratchDir, PRIVATE);
      const ended = await runChild(job, { processes, peopleWait, stop, stallMs, deadlineMs, onProgress });
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
      while (running.size > 0 && performance.now() < until) await new Promise((resolve) => setTimeout(resolve, 20));
    },
  };
}

const STUCK = 'The last scan still hangs in a call to the share; it is tried again when that has ended.';

function cacheDirOf(stateDir: string, datasetId: string): string {
  if (!/^[A-Za-z0-9_-]+$/.test(datasetId)) throw new ScanError(`not the id of a dataset: ${JSON.stringify(datasetId)}`);
  return join(stateDir, 'datasets', datasetId);
}

/** Also for a folder that an earlier version made with mode 0755. */
function makePrivate(stateDir: string): void {
  mkdirSync(stateDir, PRIVATE);
  chmodSync(stateDir, PRIVATE.mode);
}

/** Scratch folders of processes that are gone. */
function removeLeftovers(scans: string): void {
  mkdirSync(scans, PRIVATE);
  for (const name of readdirSync(scans)) {
    const pid = Number.parseInt(name, 10);
    if (pid === process.pid || !existsSync(`/proc/${pid}`)) rmSync(join(scans, name), { recursive: true, force: true });
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
/** `left`: the process, if it could not be ended. */
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
      Math.min(LOOK_MS, stallMs / 4),
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
    const why = how === 'stalled' ? `made no progress for ${stallMs / 1000} s` : `took longer than ${deadlineMs / 1000} s`;
    const problem = `The scan of ${job.nfsPath} ${why} and was ended; the share may hang.`;
    return { outcome: { kind: 'unreachable', problem }, left: (await child.kill()) ? null : child };
  } catch (error) {
    await child.kill();
    // One that waited for work may have been ended while it waited, which says nothing of this scan.
    if (child.begun === 'before' && error instanceof ScanProcessGone) return await runChild(job, options);
    throw error;
  } finally {
    ended.catch(() => undefined);
    clearInterval(timer);
  }
}
