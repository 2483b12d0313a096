/** Compares two versions of a dataset by their tree objects. Equal folders are not read. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { diffTrees, type LoadTree, type TreeChange } from '@berth/wire/tree';
import { DomainError } from '../domain/platform/errors.ts';

/** Maximum number of differences to count and list. */
const MOST_DIFFERENCES = 100_000;
/** Maximum number of tree objects to read for one request: a million folders can differ. */
const MOST_OBJECTS = 20_000;
/** Time limit of one comparison in ms. */
const WITHIN_MS = 5_000;
/**
 * Limits of comparisons: running at a time (one for each person), waiting for each person, waiting
 * in all.
 */
const TURNS = { atOnce: 3, waitingOfOne: 2, waiting: 12 };
const RETRY_AFTER_S = 5;
/** Working time in ms between two yields to the event loop. */
const TURN_MS = 10;

export type DiffTotals = {
  added: { files: number; bytes: number };
  modified: { files: number; bytes: number; previous_bytes: number };
  removed: { files: number; bytes: number };
  /** False if a limit ended the comparison, so that there are more differences. */
  complete: boolean;
};

class TooMany extends Error {}

type PageOptions = {
  offset: number;
  limit: number;
  known?: DiffTotals | null;
  /** Aborts the comparison. */
  signal?: AbortSignal;
  withinMs?: number;
  clock?: () => number;
};

/**
 * Returns `limit` differences starting at number `offset`, and the totals. With `known` totals it
 * reads only as far as the page needs. `isFinal`: neither the time limit nor `signal` ended it, so
 * a repetition gives the same result. Rejects with the error of `load`.
 */
export async function diffPage(
  roots: { from: string; to: string },
  load: LoadTree,
  {
    offset,
    limit,
    known = null,
    signal,
    withinMs = WITHIN_MS,
    clock = () => performance.now(),
  }: PageOptions,
): Promise<{ items: TreeChange[]; hasMore: boolean; totals: DiffTotals; isFinal: boolean }> {
  const totals: DiffTotals = {
    added: { files: 0, bytes: 0 },
    modified: { files: 0, bytes: 0, previous_bytes: 0 },
    removed: { files: 0, bytes: 0 },
    complete: true,
  };
  const items: TreeChange[] = [];
  let objects = 0;
  let isFinal = true;
  const until = clock() + withinMs;
  let turn = performance.now();
  const breathe = async (): Promise<void> => {
    if (signal?.aborted === true || clock() >= until) {
      isFinal = false;
      throw new TooMany();
    }
    if (performance.now() - turn < TURN_MS) return;
    await nextTurn();
    turn = performance.now();
  };
  const bounded: LoadTree = async (digest) => {
    if ((objects += 1) > MOST_OBJECTS) throw new TooMany();
    await breathe();
    return load(digest);
  };
  let seen = 0;
  try {
    for await (const change of diffTrees(roots.from, roots.to, bounded)) {
      if (seen === MOST_DIFFERENCES) throw new TooMany();
      if (seen >= offset && items.length < limit) items.push(change);
      seen += 1;
      count(totals, change);
      if (known !== null && items.length === limit && seen > offset + limit) break;
      await breathe();
    }
  } catch (error) {
    if (!(error instanceof TooMany)) throw error;
    totals.complete = false;
  }
  const countedTotals = known ?? totals;
  return {
    items,
    hasMore: seen > offset + items.length,
    totals: isFinal ? countedTotals : { ...countedTotals, complete: false },
    isFinal,
  };
}

/**
 * Runs a comparison in its turn. Rejects with `too_many_requests` if too many wait, or when
 * `signal` ends the wait.
 */
export type InTurn = <T>(person: string, signal: AbortSignal, run: () => Promise<T>) => Promise<T>;

/**
 * Limits the comparisons: each costs seconds of work and thousands of queries, and one click in the
 * dashboard starts one.
 */
export function createComparisons({ atOnce, waitingOfOne, waiting: most } = TURNS): InTurn {
  const running = new Set<string>();
  const waiting = new Set<{ person: string; start: () => void }>();
  const refused = (): DomainError =>
    new DomainError(
      'too_many_requests',
      'too many comparisons of datasets are running or waiting',
      [],
      RETRY_AFTER_S,
    );
  function startNext(): void {
    for (const one of waiting) {
      if (running.size >= atOnce) return;
      if (running.has(one.person)) continue;
      waiting.delete(one);
      running.add(one.person);
      one.start();
    }
  }
  return async (person, signal, run) => {
    await new Promise<void>((resolve, reject) => {
      const one = { person, start: resolve };
      waiting.add(one);
      startNext();
      if (!waiting.has(one)) return;
      const mine = [...waiting].filter((other) => other.person === person).length;
      const leave = (): void => {
        if (waiting.delete(one)) reject(refused());
      };
      if (mine > waitingOfOne || waiting.size > most || signal.aborted) return leave();
      signal.addEventListener('abort', leave, { once: true });
    });
    try {
      return await run();
    } finally {
      running.delete(person);
      startNext();
    }
  };
}

function count(totals: DiffTotals, { change, size, previous_size }: TreeChange): void {
  totals[change].files += 1;
  if (change === 'removed') totals.removed.bytes += previous_size ?? 0;
  else totals[change].bytes += size ?? 0;
  if (change === 'modified') totals.modified.previous_bytes += previous_size ?? 0;
}
