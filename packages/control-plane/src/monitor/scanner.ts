/**
 * Scans of datasets, each in a child process of its own (scan-child.ts). What may happen to one:
 * running -> ended (it said its outcome) | failed (it died without one) | killed (no progress, too long, aborted, closed);
 * killed -> gone within a second | left behind: it hangs in the kernel, and until it is gone its dataset is not scanned again.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, rmSync } from 'node:fs';
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { dyingWithParent } from '@berth/kit/exec';
import type { ScanOptions, ScanOutcome, Scanner, ScanRequest, ScanResult } from '../domain/scan.ts';
import type { ScanJob } from './run-scan.ts';
import type { ChildMessage } from './scan-child.ts';
import { openTreeFiles } from './scratch.ts';
import { stepBack } from './step-back.ts';

export type ScannerOptions = {
  /** Of the control plane; `datasets/`, `scans/` and `compile-cache/` in it are ours. */
  stateDir: string;
  /** PATH, where `find` is looked for. */
  searchPath: string;
  /** Hashing threads of one scan. */
  workers: number;
  /** How long a scan may make no progress at all. Default 30 s. */
  stallMs?: number;
  /** How long a scan may take. Default a day. */
  deadlineMs?: number;
  /** How often a scan that hashes keeps what it has, for the next one should it be ended. Default a minute. */
  keepMs?: number;
};

/** The scanner itself failed: nothing can be said about the dataset. */
export class ScanError extends Error {
  override name = 'ScanError';
}

const CHILD = fileURLToPath(new URL('./scan-child.ts', import.meta.url));
const LOOK_MS = 250;
/** A process that is not gone this long after SIGKILL hangs in the kernel. */
const EXIT_MS = 1_000;
const MOST_ERRORS = 8_192;

export function createScanner({
  stateDir,
  searchPath,
  workers,
  stallMs = 30_000,
  deadlineMs = 86_400_000,
  keepMs = 60_000,
}: ScannerOptions): Scanner {
  const scans = join(stateDir, 'scans');
  const compileCache = join(stateDir, 'compile-cache');
  removeLeftovers(scans);
  const running = new Set<AbortController>();
  const leftBehind = new Map<string, ChildProcess>();

  async function scan(request: ScanRequest, { signal, onProgress }: ScanOptions): Promise<ScanResult> {
    const cacheDir = cacheDirOf(stateDir, request.datasetId);
    const stuck = leftBehind.get(request.datasetId);
    if (stuck !== undefined && isAlive(stuck)) return { kind: 'unreachable', problem: STUCK };
    leftBehind.delete(request.datasetId);
    const abort = new AbortController();
    const stop = AbortSignal.any([signal, abort.signal]);
    stop.throwIfAborted();

    const scratchDir = join(scans, `${process.pid}-${randomUUID()}`);
    const job: ScanJob = { ...request, cachePath: join(cacheDir, 'last-scan'), scratchDir, workers, searchPath, keepMs };
    running.add(abort);
    let keep = false;
    try {
      await mkdir(cacheDir, { recursive: true });
      await mkdir(scratchDir, { recursive: true });
      const ended = await runChild(job, { compileCache, stop, stallMs, deadlineMs, onProgress });
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

/** Scratch folders of processes that are gone. */
function removeLeftovers(scans: string): void {
  mkdirSync(scans, { recursive: true });
  for (const name of readdirSync(scans)) {
    const pid = Number.parseInt(name, 10);
    if (pid === process.pid || !existsSync(`/proc/${pid}`)) rmSync(join(scans, name), { recursive: true, force: true });
  }
}

const isAlive = (child: ChildProcess): boolean => child.exitCode === null && child.signalCode === null;

type RunChild = { compileCache: string; stop: AbortSignal; stallMs: number; deadlineMs: number; onProgress: ScanOptions['onProgress'] };
/** `left`: the process, if it could not be ended. */
type Ended = { outcome: ScanOutcome; left: ChildProcess | null };

async function runChild(job: ScanJob, { compileCache, stop, stallMs, deadlineMs, onProgress }: RunChild): Promise<Ended> {
  const [program = '', ...args] = dyingWithParent([process.execPath, CHILD, JSON.stringify(job)]);
  const child = spawn(program, args, {
    detached: true,
    stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
    // Most of a short scan would be Node reading our TypeScript.
    env: { PATH: job.searchPath, NODE_COMPILE_CACHE: compileCache },
  });
  // From outside: by its own hand only once Node has begun in it, which would be a good part of a short scan.
  if (child.pid !== undefined) stepBack(child.pid);
  let errors = '';
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    errors = (errors + text).slice(-MOST_ERRORS);
  });

  const startedAt = performance.now();
  let movedAt = startedAt;
  let last = '';
  const ended = new Promise<ScanOutcome>((resolve, reject) => {
    child.once('error', (error) => reject(new ScanError(`cannot start the scan: ${error.message}`, { cause: error })));
    // Behind the last message: the channel ends when the process does.
    child.once('disconnect', () =>
      child.once('close', (code, signal) =>
        reject(new ScanError(`the scan ended without an outcome (${code ?? signal}): ${errors.trim()}`)),
      ),
    );
    child.on('message', (message: ChildMessage) => {
      if (message.kind === 'outcome') resolve(message.outcome);
      else if (message.kind === 'failed') reject(new ScanError(`the scan failed: ${message.message}`));
      else if (JSON.stringify(message.progress) !== last) {
        last = JSON.stringify(message.progress);
        movedAt = performance.now();
        onProgress?.(message.progress);
      }
    });
  });
  let timer: NodeJS.Timeout | undefined;
  const overdue = new Promise<'stalled' | 'deadline' | 'stopped'>((resolve) => {
    timer = setInterval(
      () => {
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
      letGo(child);
      return { outcome: how, left: null };
    }
    const why = how === 'stalled' ? `made no progress for ${stallMs / 1000} s` : `took longer than ${deadlineMs / 1000} s`;
    const problem = `The scan of ${job.nfsPath} ${why} and was ended; the share may hang.`;
    return { outcome: { kind: 'unreachable', problem }, left: (await kill(child)) ? null : child };
  } catch (error) {
    await kill(child);
    throw error;
  } finally {
    ended.catch(() => undefined);
    clearInterval(timer);
  }
}

/** It has said all and ends by itself; nobody waits for it. */
function letGo(child: ChildProcess): void {
  child.unref();
  child.channel?.unref();
  const late = setTimeout(() => void kill(child), EXIT_MS);
  late.unref();
  child.once('exit', () => clearTimeout(late));
}

/** With all that it started. False: it is still there after a second, and nobody waits for it any more. */
async function kill(child: ChildProcess): Promise<boolean> {
  if (child.pid !== undefined) {
    try {
      process.kill(-child.pid, 'SIGKILL');
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
    }
  }
  const exited = new Promise<boolean>((resolve) => {
    if (!isAlive(child)) resolve(true);
    child.once('exit', () => resolve(true));
    setTimeout(() => resolve(false), EXIT_MS).unref();
  });
  const gone = await exited;
  child.stderr?.destroy();
  if (child.connected) child.disconnect();
  child.unref();
  return gone;
}
