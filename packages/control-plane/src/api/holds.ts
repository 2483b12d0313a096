/**
 * Requests that are answered later: long polls and streams. Each hold ends when its client goes away or the server closes,
 * whichever is first; there are never more than MAX_HOLDS of them.
 */
import type { ServerResponse } from 'node:http';
import type { Changes, Topic } from '../domain/changes.ts';

const MAX_HOLDS = 20_000;

export type HoldKind = 'tasks' | 'config' | 'logs';
export type Hold = {
  /** Aborted when its client went away or the server is closing: answer with what there is. */
  signal: AbortSignal;
  release(): void;
};

export type Holds = {
  /** null: too many are held already. Call `release` in a `finally`. */
  begin(kind: HoldKind, response: ServerResponse): Hold | null;
  counts(): Record<HoldKind, number>;
  /** Ends all of them, now and in future. */
  closeAll(): void;
  closed(): boolean;
};

export function createHolds(max = MAX_HOLDS): Holds {
  const open = new Map<AbortController, HoldKind>();
  let closed = false;
  return {
    begin(kind, response) {
      if (open.size >= max) return null;
      const abort = new AbortController();
      const gone = (): void => abort.abort();
      open.set(abort, kind);
      response.once('close', gone);
      if (closed || response.destroyed) abort.abort();
      return {
        signal: abort.signal,
        release() {
          open.delete(abort);
          response.off('close', gone);
          abort.abort();
        },
      };
    },
    counts() {
      const counts: Record<HoldKind, number> = { tasks: 0, config: 0, logs: 0 };
      for (const kind of open.values()) counts[kind]++;
      return counts;
    },
    closeAll() {
      closed = true;
      for (const abort of open.keys()) abort.abort();
    },
    closed: () => closed,
  };
}

/**
 * Looks until `isNews`, the time is over or the hold has ended, at every notify of the topic and every `lookMs` (left out:
 * somebody else notifies of what other control planes do); returns what it saw last.
 */
export async function lookUntil<T>(
  look: () => Promise<T>,
  isNews: (seen: T) => boolean,
  until: { changes: Changes; topic: Topic; waitMs: number; lookMs?: number; signal: AbortSignal },
): Promise<T> {
  const end = performance.now() + until.waitMs;
  const done = new AbortController();
  const over = (): void => done.abort();
  until.signal.addEventListener('abort', over, { once: true });
  try {
    for (;;) {
      const left = end - performance.now();
      // Subscribed before the look: what happens during it is not missed.
      const next = Math.min(left, until.lookMs ?? left);
      const moved = until.changes.wait(until.topic, Math.max(1, next), done.signal);
      const seen = await look();
      if (isNews(seen) || left <= 0 || until.signal.aborted) return seen;
      // Nothing moved up to the end (a timer may ring a little early): what was seen is what there is.
      if (!(await moved) && (until.signal.aborted || next === left)) return seen;
    }
  } finally {
    until.signal.removeEventListener('abort', over);
    done.abort();
  }
}
