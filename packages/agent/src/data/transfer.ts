/**
 * A copy of one version from its first round to its end, and the tasks that wait for it.
 *
 *   round ──all files correct──> done
 *     │ some files differ from the manifest: the source changed
 *     └> rescan ─> the version that the source has become ─> next round; after MAX_ROUNDS rounds `dataset_moving`
 *
 * Each task may stop waiting; when the last one stops, the transfer ends. Its staging folder is
 * removed before the end is reported.
 */
import { join } from 'node:path';
import type { Limit } from '@berth/kit/limit';
import type { CopyProgress } from '@berth/wire/dataset';
import { displayPath } from '@berth/wire/tree';
import { reasonOf } from '../stopped.ts';
import type { Reservation, StorageMeter } from '../disk/storage.ts';
import { TaskFailure } from '../failures.ts';
import { type CopyDeps, copyRound, type Round } from './copy.ts';
import type { CopyRate } from './copy-rate.ts';
import { removeTree } from '../file-system.ts';
import { createProgressMeter } from './progress-meter.ts';
import { type LinkSource, sourceOfStaging } from './staging.ts';
import type { Rescan } from './rescan.ts';
import { countText, filesText, sizeText, timeText } from '../disk/size-text.ts';
import { versionText, type WantedVersion } from './wanted-version.ts';

export const COPY_OUTCOMES = ['completed', 'failed', 'cancelled'] as const;
/**
 * The end of one copy of a version. `bytes` is what rsync copied; `ms` is without the wait for a
 * free slot.
 */
export type CopyEnd = { outcome: (typeof COPY_OUTCOMES)[number]; bytes: number; ms: number };

export type TransferDeps = CopyDeps & {
  /** `.staging/{process}`. */
  staging: string;
  storage: StorageMeter;
  rescan: Rescan;
  copyRate: CopyRate;
  onEnded(ended: CopyEnd): void;
  /** Runs `work` when fewer than COPIES_AT_ONCE other copies run. */
  limit: Limit;
};
export type CopyListener = {
  onProgress(progress: CopyProgress): void;
  logLine(text: string): void;
};
/** The copied files and bytes. `want` may be a later version than the one that was asked for. */
export type Copied = { want: WantedVersion; files: number; bytes: number };

export type Transfer = {
  want(): WantedVersion;
  /** Waits for the copy. Rejects with the signal's reason when that comes first. */
  join(listener: CopyListener, signal: AbortSignal): Promise<Copied>;
  done: Promise<void>;
  /** Whether no task waits any more. A later request starts a new transfer. */
  isEnding(): boolean;
};

const MAX_ROUNDS = 3;
const NAMED_FILES = 5;
let count = 0;

/**
 * `onMoved` is called when the transfer continues as a later version; if it returns a transfer of
 * that version, that one is used.
 */
export function startTransfer(
  deps: TransferDeps,
  first: WantedVersion,
  onMoved: (next: WantedVersion) => Transfer | null,
): Transfer {
  const ending = new AbortController();
  const { signal } = ending;
  const listeners = new Set<CopyListener>();
  const logLine = (text: string): void => listeners.forEach((w) => w.logLine(text));
  const meter = createProgressMeter(first, (progress) =>
    listeners.forEach((w) => w.onProgress(progress)),
  );
  const folder = join(deps.staging, `copy-${(count += 1)}`);
  const reservations: Reservation[] = [];
  let room = 0;
  let want = first;
  let waiting = 0;
  let copiedBytes = 0;
  let workedMs = 0;
  /** Whether the transfer waits for another one of the same version, which is counted instead. */
  let handedOver = false;

  async function runRound(number: number, sources: readonly LinkSource[]): Promise<Round> {
    const begun = performance.now();
    let copyingSince = begun;
    let roundBytes = 0;
    let lines = createLines(logLine);
    const result = await copyRound(deps, want, {
      signal,
      place: join(folder, `round-${number}`),
      sources,
      onReserved: (reservation) => reservations.push(reservation),
      logLine,
      onStep(step, staging) {
        if (step === 'copying') {
          copyingSince = performance.now();
          lines = createLines(logLine, staging.copy.bytes);
          logLine(
            `copying ${versionText(want)}: ${sizeText(staging.copy.bytes)} in ` +
              `${filesText(staging.copy.files)}; ` +
              `${countText(staging.linked.files)} already on this node`,
          );
        }
        meter.step(step, staging.copy.bytes);
      },
      onBytes(bytes) {
        roundBytes = bytes;
        meter.bytes(bytes);
        lines.at(meter.now());
      },
    }).finally(() => {
      copiedBytes += roundBytes;
      workedMs += performance.now() - begun;
    });
    const { copy, linked } = result.staging;
    const [ms, copyingMs] = [performance.now() - begun, performance.now() - copyingSince];
    // A copy that was interrupted has not transferred all bytes.
    if (result.kind === 'done') await deps.copyRate.add(copy.bytes, copyingMs);
    room += copy.room;
    const all = copy.files + linked.files;
    const rate = `${sizeText((copy.bytes / Math.max(1, copyingMs)) * 1000)}/s`;
    if (result.kind === 'done')
      logLine(
        `copied ${sizeText(copy.bytes)} of ${versionText(want)} in ${timeText(ms)}, ${rate}; ` +
          `${countText(linked.files)} of ${countText(all)} files were already on this node`,
      );
    return result;
  }

  async function runRounds(): Promise<Copied> {
    const sources: LinkSource[] = [];
    const sum = { files: 0, bytes: 0 };
    for (let number = 1; ; number += 1) {
      const result = await deps.limit(() => runRound(number, sources), signal);
      sum.files += result.staging.copy.files;
      sum.bytes += result.staging.copy.bytes;
      if (result.kind === 'done') {
        meter.step('done');
        return { want, ...sum };
      }
      if (number === MAX_ROUNDS) throw failureOf(want, result);
      sources.unshift(await sourceOfStaging(result.staging, result.wrong));
      if (result.killed) {
        logLine(`${result.rsyncMessage}; copying the remaining files`);
        continue;
      }
      logLine(
        `the source changed during the copy: ${namesOf(result.wrong)}; rescanning the dataset`,
      );
      const now = await deps.rescan(want.dataset_id, signal);
      if (now.version === null || now.manifest_digest === null) throw failureOf(want, result);
      const next: WantedVersion = {
        ...want,
        nfs_path: now.nfs_path,
        version: now.version,
        manifest_digest: now.manifest_digest,
      };
      if (next.version !== want.version) {
        logLine(`the dataset is now v${next.version}`);
        const other = onMoved(next);
        handedOver = other !== null;
        if (other !== null)
          return other.join(
            { onProgress: (p) => listeners.forEach((w) => w.onProgress(p)), logLine },
            signal,
          );
      }
      want = next;
      meter.restart(want);
    }
  }

  async function runAndCleanUp(): Promise<Copied> {
    let storedBytes = 0;
    try {
      const copied = await runRounds();
      storedBytes = room;
      return copied;
    } finally {
      await removeTree(folder).finally(() => {
        // Do both in one step: the reserved bytes are the bytes on disk now.
        for (const reservation of reservations) reservation.release();
        deps.storage.add(storedBytes);
        deps.storage.stale();
      });
    }
  }
  const result = runAndCleanUp();
  const reportEnd = (outcome: CopyEnd['outcome']): void => {
    if (workedMs > 0 && !handedOver) deps.onEnded({ outcome, bytes: copiedBytes, ms: workedMs });
  };
  // No task may be waiting when the transfer fails.
  const done = result.then(
    () => reportEnd('completed'),
    () => reportEnd(signal.aborted ? 'cancelled' : 'failed'),
  );
  return {
    want: () => want,
    done,
    isEnding: () => signal.aborted,
    async join(listener, taskSignal) {
      listeners.add(listener);
      waiting += 1;
      listener.onProgress(meter.now());
      const aborted = Promise.withResolvers<never>();
      const onAbort = (): void => aborted.reject(reasonOf(taskSignal));
      if (taskSignal.aborted) onAbort();
      else taskSignal.addEventListener('abort', onAbort, { once: true });
      try {
        return await Promise.race([result, aborted.promise]);
      } finally {
        taskSignal.removeEventListener('abort', onAbort);
        listeners.delete(listener);
        waiting -= 1;
        if (waiting === 0) {
          ending.abort(
            taskSignal.aborted
              ? reasonOf(taskSignal)
              : new Error('no task waits for the copy any more'),
          );
          await done;
        }
      }
    },
  };
}

function namesOf(paths: ReadonlySet<string>): string {
  const named = [...paths].slice(0, NAMED_FILES).map(displayPath).join(', ');
  return paths.size > NAMED_FILES
    ? `${named} and ${countText(paths.size - NAMED_FILES)} more`
    : named;
}
function failureOf(
  want: WantedVersion,
  { wrong, rsyncMessage, killed }: Extract<Round, { kind: 'wrong' }>,
): TaskFailure {
  if (killed)
    return new TaskFailure('dataset_copy_failed', `${versionText(want)}: ${rsyncMessage}`);
  return new TaskFailure(
    'dataset_moving',
    `${versionText(want)}: ${namesOf(wrong)}${rsyncMessage === '' ? '' : ` (${rsyncMessage})`}`,
  );
}

const LINE_EVERY_MS = 15_000;
/** Logs a line for each tenth of the copy, at most one per second, and at least one every 15 s. */
function createLines(
  logLine: (text: string) => void,
  total = 0,
): { at(progress: CopyProgress): void } {
  let loggedAt = performance.now();
  let tenth = 0;
  return {
    at({ name, bytes_done, bytes_per_second, remaining_seconds }) {
      const now = Math.floor((bytes_done / Math.max(1, total)) * 10);
      const ms = performance.now() - loggedAt;
      if (now >= 10 || ms < 1_000 || (now === tenth && ms < LINE_EVERY_MS)) return;
      loggedAt = performance.now();
      tenth = now;
      const rate = bytes_per_second === null ? '' : `, ${sizeText(bytes_per_second)}/s`;
      const left = remaining_seconds === null ? '' : `, ${timeText(remaining_seconds * 1000)} left`;
      logLine(`${name}: ${sizeText(bytes_done)} of ${sizeText(total)}${rate}${left}`);
    },
  };
}
