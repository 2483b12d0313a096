/**
 * Copies one version, from the first round to the last, for all tasks that wait for it.
 *
 *   round ──all files correct──> done
 *     │ some files differ from the manifest, because the source changed
 *     └> rescan ─> the version that the source is now ─> next round;
 *        after MAX_ROUNDS rounds `dataset_moving`
 *
 * Each task can stop waiting. When the last one stops, the transfer is aborted. The staging folder
 * is removed before the result is reported.
 */
import { join } from 'node:path';
import type { Limit } from '@berth/kit/limit';
import type { CopyProgress } from '@berth/wire/dataset';
import { decimalSizeText } from '@berth/wire/size-text';
import { displayPath } from '@berth/wire/tree';
import { reasonOf } from '../stopped.ts';
import type { Reservation, StorageMeter } from '../disk/storage.ts';
import { TaskFailure } from '../failures.ts';
import { type CopyDeps, copyRound, type Round } from './copy.ts';
import type { CopyRate } from './copy-rate.ts';
import { removeTree } from '../file-system.ts';
import { createProgressMeter, type ProgressMeter } from './progress-meter.ts';
import { type LinkSource, sourceOfStaging } from './staging.ts';
import type { Rescan } from './rescan.ts';
import { countText, filesText, timeText } from '../disk/number-text.ts';
import { versionText, type WantedVersion } from './wanted-version.ts';

export const COPY_OUTCOMES = ['completed', 'failed', 'cancelled'] as const;
/**
 * Result of one copy of a version. `bytes`: bytes that rsync copied; `ms`: duration without the
 * wait for a free slot.
 */
export type CopyEnd = { outcome: (typeof COPY_OUTCOMES)[number]; bytes: number; ms: number };

export type TransferDeps = CopyDeps & {
  /** The folder `.staging/{process}`. */
  staging: string;
  storage: StorageMeter;
  rescan: Rescan;
  copyRate: CopyRate;
  onEnded(ended: CopyEnd): void;
  /** Runs `work` as soon as fewer than COPIES_AT_ONCE other copies are running. */
  limit: Limit;
};
export type CopyListener = {
  onProgress(progress: CopyProgress): void;
  logLine(text: string): void;
};
/**
 * The copied files and bytes. `want`: the copied version, which can be newer than the requested
 * version.
 */
export type Copied = { want: WantedVersion; files: number; bytes: number };

export type Transfer = {
  want(): WantedVersion;
  /** Waits for the copy. Rejects with the signal's reason if the signal aborts first. */
  join(listener: CopyListener, signal: AbortSignal): Promise<Copied>;
  done: Promise<void>;
  /** Tells whether the last waiting task has left. A later request must start a new transfer. */
  isEnding(): boolean;
};

type WrongRound = Extract<Round, { kind: 'wrong' }>;

const MAX_ROUNDS = 3;
const NAMED_FILES = 5;
let count = 0;

/**
 * Called when the transfer switches to a newer version. If a transfer of that version already runs,
 * returns it, and this transfer waits for it instead.
 */
export type OnMoved = (next: WantedVersion) => Transfer | null;

/** The state of one transfer. */
type Copying = {
  deps: TransferDeps;
  /** Changes if the dataset gets a newer version during the copy. */
  want: WantedVersion;
  onMoved: OnMoved;
  /** Aborted when the last waiting task has left. */
  ending: AbortController;
  /** The tasks that wait for the copy. */
  listeners: Set<CopyListener>;
  /** Sends the same line to all listeners. */
  logLine: (text: string) => void;
  meter: ProgressMeter;
  folder: string;
  reservations: Reservation[];
  /** Bytes of the copied files on disk. */
  room: number;
  copiedBytes: number;
  workedMs: number;
  /**
   * True if this transfer waits for a transfer that already copies the new version. Only that
   * transfer reports its end to `onEnded`.
   */
  handedOver: boolean;
};

export function startTransfer(
  deps: TransferDeps,
  first: WantedVersion,
  onMoved: OnMoved,
): Transfer {
  const listeners = new Set<CopyListener>();
  const copying: Copying = {
    deps,
    want: first,
    onMoved,
    ending: new AbortController(),
    listeners,
    logLine: (text) => listeners.forEach((listener) => listener.logLine(text)),
    meter: createProgressMeter(first, (progress) =>
      listeners.forEach((listener) => listener.onProgress(progress)),
    ),
    folder: join(deps.staging, `copy-${(count += 1)}`),
    reservations: [],
    room: 0,
    copiedBytes: 0,
    workedMs: 0,
    handedOver: false,
  };
  const result = runAndCleanUp(copying);
  // Handle the rejection here: it is possible that no task awaits `result`.
  const done = result.then(
    () => reportEnd(copying, 'completed'),
    () => reportEnd(copying, copying.ending.signal.aborted ? 'cancelled' : 'failed'),
  );
  return {
    want: () => copying.want,
    done,
    isEnding: () => copying.ending.signal.aborted,
    join: (listener, signal) => joinTransfer(copying, { result, done }, listener, signal),
  };
}

/** Waits for the result. The transfer is aborted when the last waiting task leaves. */
async function joinTransfer(
  { listeners, meter, ending }: Copying,
  { result, done }: { result: Promise<Copied>; done: Promise<void> },
  listener: CopyListener,
  signal: AbortSignal,
): Promise<Copied> {
  // Create a separate listener for each call, because a task can wait twice.
  const waiting: CopyListener = { ...listener };
  listeners.add(waiting);
  waiting.onProgress(meter.now());
  const aborted = Promise.withResolvers<never>();
  const onAbort = (): void => aborted.reject(reasonOf(signal));
  if (signal.aborted) onAbort();
  else signal.addEventListener('abort', onAbort, { once: true });
  try {
    return await Promise.race([result, aborted.promise]);
  } finally {
    signal.removeEventListener('abort', onAbort);
    listeners.delete(waiting);
    if (listeners.size === 0) {
      ending.abort(
        signal.aborted ? reasonOf(signal) : new Error('no task waits for the copy any more'),
      );
      await done;
    }
  }
}

async function runAndCleanUp(copying: Copying): Promise<Copied> {
  const { deps, folder, reservations } = copying;
  let storedBytes = 0;
  try {
    const copied = await runRounds(copying);
    storedBytes = copying.room;
    return copied;
  } finally {
    await removeTree(folder).finally(() => {
      // Do both without an await in between: the reserved bytes have become used bytes.
      for (const reservation of reservations) reservation.release();
      deps.storage.add(storedBytes);
      deps.storage.stale();
    });
  }
}

function reportEnd(
  { deps, workedMs, copiedBytes, handedOver }: Copying,
  outcome: CopyEnd['outcome'],
): void {
  if (workedMs > 0 && !handedOver) deps.onEnded({ outcome, bytes: copiedBytes, ms: workedMs });
}

/** Copies in rounds until all files are correct (see the top of this file). */
async function runRounds(copying: Copying): Promise<Copied> {
  const { deps, meter, logLine, ending } = copying;
  const sources: LinkSource[] = [];
  const sum = { files: 0, bytes: 0 };
  for (let number = 1; ; number += 1) {
    const round = await deps.limit(() => runRound(copying, number, sources), ending.signal);
    sum.files += round.staging.copy.files;
    sum.bytes += round.staging.copy.bytes;
    if (round.kind === 'done') {
      meter.step('done');
      return { want: copying.want, ...sum };
    }
    if (number === MAX_ROUNDS) throw failureOf(copying.want, round);
    sources.unshift(await sourceOfStaging(round.staging, round.wrong));
    if (round.killed) {
      logLine(`${round.rsyncMessage}; copying the remaining files`);
      continue;
    }
    const other = await followSource(copying, round);
    if (other !== null) return joinOther(copying, other);
  }
}

/**
 * The source changed during the copy: finds out which version it is now, and continues with that
 * version. If a transfer of that version already runs, returns it; null: continue this transfer.
 */
async function followSource(copying: Copying, round: WrongRound): Promise<Transfer | null> {
  const { deps, want, meter, logLine, ending } = copying;
  logLine(`the source changed during the copy: ${namesOf(round.wrong)}; rescanning the dataset`);
  const scanned = await deps.rescan(want.dataset_id, ending.signal);
  const { nfs_path, version, manifest_digest } = scanned;
  if (version === null || manifest_digest === null) throw failureOf(want, round);
  const next: WantedVersion = { ...want, nfs_path, version, manifest_digest };
  if (next.version !== want.version) {
    logLine(`the dataset is now v${next.version}`);
    const other = copying.onMoved(next);
    copying.handedOver = other !== null;
    if (other !== null) return other;
  }
  copying.want = next;
  meter.restart(next);
  return null;
}

const joinOther = ({ listeners, logLine, ending }: Copying, other: Transfer): Promise<Copied> =>
  other.join(
    {
      onProgress: (progress) => listeners.forEach((listener) => listener.onProgress(progress)),
      logLine,
    },
    ending.signal,
  );

async function runRound(
  copying: Copying,
  number: number,
  sources: readonly LinkSource[],
): Promise<Round> {
  const { deps, want, meter, logLine, ending, reservations } = copying;
  const begun = performance.now();
  let copyingSince = begun;
  let roundBytes = 0;
  let lines = createLines(logLine);
  const round = await copyRound(deps, want, {
    signal: ending.signal,
    place: join(copying.folder, `round-${number}`),
    sources,
    onReserved: (reservation) => reservations.push(reservation),
    logLine,
    onStep(step, staging) {
      if (step === 'copying') {
        copyingSince = performance.now();
        lines = createLines(logLine, staging.copy.bytes);
        logLine(copyingText(want, staging));
      }
      meter.step(step, staging.copy.bytes);
    },
    onBytes(bytes) {
      roundBytes = bytes;
      meter.bytes(bytes);
      lines.at(meter.now());
    },
  }).finally(() => {
    copying.copiedBytes += roundBytes;
    copying.workedMs += performance.now() - begun;
  });
  const { copy } = round.staging;
  const [ms, copyingMs] = [performance.now() - begun, performance.now() - copyingSince];
  copying.room += copy.room;
  // Only a complete copy has transferred all bytes.
  if (round.kind === 'done') {
    await deps.copyRate.add(copy.bytes, copyingMs);
    logLine(copiedText(want, round.staging, ms, copyingMs));
  }
  return round;
}

type Counts = Pick<Round['staging'], 'copy' | 'linked'>;

const copyingText = (want: WantedVersion, { copy, linked }: Counts): string =>
  `copying ${versionText(want)}: ${decimalSizeText(copy.bytes)} in ${filesText(copy.files)}; ` +
  `${countText(linked.files)} already on this node`;

function copiedText(
  want: WantedVersion,
  { copy, linked }: Counts,
  ms: number,
  copyingMs: number,
): string {
  const rate = `${decimalSizeText((copy.bytes / Math.max(1, copyingMs)) * 1000)}/s`;
  const all = copy.files + linked.files;
  return (
    `copied ${decimalSizeText(copy.bytes)} of ${versionText(want)} in ${timeText(ms)}, ${rate}; ` +
    `${countText(linked.files)} of ${countText(all)} files were already on this node`
  );
}

function namesOf(paths: ReadonlySet<string>): string {
  const named = [...paths].slice(0, NAMED_FILES).map(displayPath).join(', ');
  return paths.size > NAMED_FILES
    ? `${named} and ${countText(paths.size - NAMED_FILES)} more`
    : named;
}
function failureOf(want: WantedVersion, { wrong, rsyncMessage, killed }: WrongRound): TaskFailure {
  if (killed)
    return new TaskFailure('dataset_copy_failed', `${versionText(want)}: ${rsyncMessage}`);
  return new TaskFailure(
    'dataset_moving',
    `${versionText(want)}: ${namesOf(wrong)}${rsyncMessage === '' ? '' : ` (${rsyncMessage})`}`,
  );
}

const LINE_EVERY_MS = 15_000;
/** Logs a line for each tenth of the copy: at most one per second, and at least one per 15 s. */
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
      const rate = bytes_per_second === null ? '' : `, ${decimalSizeText(bytes_per_second)}/s`;
      const timeLeft =
        remaining_seconds === null ? '' : `, ${timeText(remaining_seconds * 1000)} left`;
      logLine(
        `${name}: ${decimalSizeText(bytes_done)} of ${decimalSizeText(total)}${rate}${timeLeft}`,
      );
    },
  };
}
