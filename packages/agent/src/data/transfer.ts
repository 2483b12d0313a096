/**
 * A copy from its first round to its end, and everybody who waits for it.
 *
 *   round ──all right──> done
 *     │ files are not as the manifest says: the source moved on
 *     └> have it scanned ─> the version that it is now ─> next round; after ROUNDS of them `dataset_moving`
 *
 * Each waiter may go; the last one that goes ends it. What it has in .staging is gone before anybody hears of the end.
 */
import { join } from 'node:path';
import type { CopyProgress } from '@berth/wire/dataset';
import { displayPath } from '@berth/wire/tree';
import { reasonOf } from '../stopped.ts';
import type { Reservation, StorageMeter } from '../storage.ts';
import { TaskFailure } from '../tools/failures.ts';
import { type CopyDeps, copyRound, type Round, type Wanted } from './copy.ts';
import type { CopyRate } from './copy-rate.ts';
import { removeTree } from './disk.ts';
import { createGauge } from './gauge.ts';
import { type LinkSource, sourceOfStaging } from './plan.ts';
import type { Rescan } from './rescan.ts';
import { countText, filesText, sizeText, timeText } from './say.ts';

export const COPY_OUTCOMES = ['completed', 'failed', 'cancelled'] as const;
/** One copy of a version. `bytes`: what rsync brought; `ms`: without the wait for its turn. */
export type CopyEnd = { outcome: (typeof COPY_OUTCOMES)[number]; bytes: number; ms: number };

export type TransferDeps = CopyDeps & {
  /** `.staging/{process}`. */
  staging: string;
  storage: StorageMeter;
  rescan: Rescan;
  copyRate: CopyRate;
  onEnded(ended: CopyEnd): void;
  /** Runs `work` when fewer than COPIES_AT_ONCE others do. */
  slot<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T>;
};
export type Watcher = { onProgress(progress: CopyProgress): void; say(text: string): void };
/** What was copied, files and bytes; `version` may be later than the one that was asked for. */
export type Copied = { want: Wanted; files: number; bytes: number };

export type Transfer = {
  want(): Wanted;
  /** Rejects with the signal's reason when that comes first. */
  join(watcher: Watcher, signal: AbortSignal): Promise<Copied>;
  done: Promise<void>;
  /** Everybody has gone; who comes now begins anew. */
  isEnding(): boolean;
};

const ROUNDS = 3;
const NAMED = 5;
let count = 0;

/** `onMoved`: it goes on as another version; what it gives, if anything, is a transfer of that version to wait for instead. */
export function startTransfer(deps: TransferDeps, first: Wanted, onMoved: (next: Wanted) => Transfer | null): Transfer {
  const ending = new AbortController();
  const { signal } = ending;
  const watchers = new Set<Watcher>();
  const say = (text: string): void => watchers.forEach((w) => w.say(text));
  const gauge = createGauge(first, (progress) => watchers.forEach((w) => w.onProgress(progress)));
  const folder = join(deps.staging, `copy-${(count += 1)}`);
  const reservations: Reservation[] = [];
  let room = 0;
  let want = first;
  let waiting = 0;
  let brought = 0;
  let workedMs = 0;
  /** Its version was already on its way: that copy is counted instead. */
  let handedOver = false;

  async function once(number: number, sources: readonly LinkSource[]): Promise<Round> {
    const begun = performance.now();
    let copyingSince = begun;
    let bytesHere = 0;
    let lines = createLines(say);
    const result = await copyRound(deps, want, {
      signal,
      place: join(folder, `round-${number}`),
      sources,
      onReserved: (reservation) => reservations.push(reservation),
      say,
      onStep(step, staging) {
        if (step === 'copying') {
          copyingSince = performance.now();
          lines = createLines(say, staging.copy.bytes);
          say(
            `copying ${nameOf(want)}: ${sizeText(staging.copy.bytes)} in ${filesText(staging.copy.files)}; ${countText(staging.linked.files)} are here already`,
          );
        }
        gauge.step(step, staging.copy.bytes);
      },
      onBytes(bytes) {
        bytesHere = bytes;
        gauge.bytes(bytes);
        lines.at(gauge.now());
      },
    }).finally(() => {
      brought += bytesHere;
      workedMs += performance.now() - begun;
    });
    const { copy, linked } = result.staging;
    const [ms, copyingMs] = [performance.now() - begun, performance.now() - copyingSince];
    // One that was ended in the middle has not copied all of it.
    if (result.kind === 'done') await deps.copyRate.add(copy.bytes, copyingMs);
    room += copy.room;
    const all = copy.files + linked.files;
    const rate = `${sizeText((copy.bytes / Math.max(1, copyingMs)) * 1000)}/s`;
    if (result.kind === 'done')
      say(
        `copied ${sizeText(copy.bytes)} of ${nameOf(want)} in ${timeText(ms)}, ${rate}; ${countText(linked.files)} of ${countText(all)} files were there already`,
      );
    return result;
  }

  async function work(): Promise<Copied> {
    const sources: LinkSource[] = [];
    const sum = { files: 0, bytes: 0 };
    for (let number = 1; ; number += 1) {
      const result = await deps.slot(signal, () => once(number, sources));
      sum.files += result.staging.copy.files;
      sum.bytes += result.staging.copy.bytes;
      if (result.kind === 'done') {
        gauge.step('done');
        return { want, ...sum };
      }
      if (number === ROUNDS) throw failureOf(want, result);
      sources.unshift(await sourceOfStaging(result.staging, result.wrong));
      if (result.killed) {
        say(`${result.said}; copying the rest`);
        continue;
      }
      say(`the source moved on while it was copied: ${namesOf(result.wrong)}; having it scanned again`);
      const now = await deps.rescan(want.dataset_id, signal);
      if (now.version === null || now.manifest_digest === null) throw failureOf(want, result);
      const next: Wanted = { ...want, nfs_path: now.nfs_path, version: now.version, manifest_digest: now.manifest_digest };
      if (next.version !== want.version) {
        say(`it is v${next.version} now`);
        const other = onMoved(next);
        handedOver = other !== null;
        if (other !== null) return other.join({ onProgress: (p) => watchers.forEach((w) => w.onProgress(p)), say }, signal);
      }
      want = next;
      gauge.restart(want);
    }
  }

  async function whole(): Promise<Copied> {
    let taken = 0;
    try {
      const copied = await work();
      taken = room;
      return copied;
    } finally {
      await removeTree(folder).finally(() => {
        // In one step: what was promised is what is there now.
        for (const reservation of reservations) reservation.release();
        deps.storage.add(taken);
        deps.storage.stale();
      });
    }
  }
  const result = whole();
  const ended = (outcome: CopyEnd['outcome']): void => {
    if (workedMs > 0 && !handedOver) deps.onEnded({ outcome, bytes: brought, ms: workedMs });
  };
  // Everybody may be gone by then.
  const done = result.then(
    () => ended('completed'),
    () => ended(signal.aborted ? 'cancelled' : 'failed'),
  );
  return {
    want: () => want,
    done,
    isEnding: () => signal.aborted,
    async join(watcher, their) {
      watchers.add(watcher);
      waiting += 1;
      watcher.onProgress(gauge.now());
      const gone = Promise.withResolvers<never>();
      const onAbort = (): void => gone.reject(reasonOf(their));
      if (their.aborted) onAbort();
      else their.addEventListener('abort', onAbort, { once: true });
      try {
        return await Promise.race([result, gone.promise]);
      } finally {
        their.removeEventListener('abort', onAbort);
        watchers.delete(watcher);
        waiting -= 1;
        if (waiting === 0) {
          ending.abort(their.aborted ? reasonOf(their) : new Error('nobody waits for it'));
          await done;
        }
      }
    },
  };
}

const nameOf = (want: Wanted): string => `${want.name} v${want.version}`;
function namesOf(paths: ReadonlySet<string>): string {
  const named = [...paths].slice(0, NAMED).map(displayPath).join(', ');
  return paths.size > NAMED ? `${named} and ${countText(paths.size - NAMED)} more` : named;
}
function failureOf(want: Wanted, { wrong, said, killed }: Extract<Round, { kind: 'wrong' }>): TaskFailure {
  if (killed) return new TaskFailure('dataset_copy_failed', `${nameOf(want)}: ${said}`);
  return new TaskFailure('dataset_moving', `${nameOf(want)}: ${namesOf(wrong)}${said === '' ? '' : ` (${said})`}`);
}

const EVERY_MS = 15_000;
/** A line for each tenth, but none for what is over in a moment. */
function createLines(say: (text: string) => void, total = 0): { at(progress: CopyProgress): void } {
  let saidAt = performance.now();
  let tenth = 0;
  return {
    at({ name, bytes_done, bytes_per_second, remaining_seconds }) {
      const now = Math.floor((bytes_done / Math.max(1, total)) * 10);
      const ms = performance.now() - saidAt;
      if (now >= 10 || ms < 1_000 || (now === tenth && ms < EVERY_MS)) return;
      saidAt = performance.now();
      tenth = now;
      const rate = bytes_per_second === null ? '' : `, ${sizeText(bytes_per_second)}/s`;
      const left = remaining_seconds === null ? '' : `, ${timeText(remaining_seconds * 1000)} left`;
      say(`${name}: ${sizeText(bytes_done)} of ${sizeText(total)}${rate}${left}`);
    },
  };
}
