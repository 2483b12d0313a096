/**
 * Requests that are answered later: long polls and streams. Each hold ends when its client goes away or the server closes,
 * whichever is first; there are never more than MAX_HOLDS of them.
 */
import type { ServerResponse } from 'node:http';
import type { Changes, Topic } from '../domain/changes.ts';

const MAX_HOLDS = 20_000;

export type HoldKind = 'tasks' | 'config' | 'logs' | 'policy' | 'deployments' | 'events';
export type Hold = {
  /** Its client went away, the server is closing, or it was released: answer with what there is. */
  ended(): boolean;
  /** Calls back at once when it has ended; one listener, the last one given. Costs less than the signal, which ten thousand polls show. */
  onEnd(listener: () => void): void;
  /** The same as a signal; made when it is first asked for. */
  readonly signal: AbortSignal;
  release(): void;
};

export type Holds = {
  /** null: too many are held already. Call `release` in a `finally`. */
  begin(kind: HoldKind, response: ServerResponse): Hold | null;
  counts(): Record<HoldKind, number>;
  /** Whether this answer may have waited for something to happen: its time says nothing about ours. */
  wasHeld(response: ServerResponse): boolean;
  /** Ends all of them, now and in future. */
  closeAll(): void;
  closed(): boolean;
};

type Open = { kind: HoldKind; end: () => void };

export function createHolds(max = MAX_HOLDS): Holds {
  const open = new Set<Open>();
  const held = new WeakSet<ServerResponse>();
  let closed = false;
  return {
    begin(kind, response) {
      if (open.size >= max) return null;
      let ended = false;
      let abort: AbortController | null = null;
      let listener: (() => void) | null = null;
      const end = (): void => {
        if (ended) return;
        ended = true;
        abort?.abort();
        listener?.();
      };
      const mine: Open = { kind, end };
      open.add(mine);
      held.add(response);
      response.on('close', end);
      if (closed || response.destroyed) end();
      return {
        ended: () => ended,
        onEnd(given) {
          listener = given;
          if (ended) given();
        },
        get signal() {
          abort ??= new AbortController();
          if (ended) abort.abort();
          return abort.signal;
        },
        release() {
          listener = null;
          open.delete(mine);
          response.off('close', end);
          end();
        },
      };
    },
    counts() {
      const counts: Record<HoldKind, number> = { tasks: 0, config: 0, logs: 0, policy: 0, deployments: 0, events: 0 };
      for (const { kind } of open) counts[kind]++;
      return counts;
    },
    wasHeld: (response) => held.has(response),
    closeAll() {
      closed = true;
      for (const { end } of open) end();
    },
    closed: () => closed,
  };
}

/**
 * Looks until `isNews`, the time is over or the hold has ended, and again at every notify of the topic (what other control planes
 * do is notified too, by the loop task-watch); returns what it saw last.
 */
export async function lookUntil<T>(
  look: () => Promise<T>,
  isNews: (seen: T) => boolean,
  until: { changes: Changes; topic: Topic; waitMs: number; hold: Hold },
): Promise<T> {
  const end = performance.now() + until.waitMs;
  let moved = false;
  let wake = (): void => {};
  // Subscribed before the look: what happens during it is not missed.
  const off = until.changes.on(until.topic, () => {
    moved = true;
    wake();
  });
  until.hold.onEnd(() => wake());
  try {
    for (;;) {
      moved = false;
      const seen = await look();
      const left = end - performance.now();
      if (isNews(seen) || left <= 0 || until.hold.ended()) return seen;
      // Nothing moved up to the end: what was seen is what there is.
      if (
        !moved &&
        !(await woken(
          left,
          (f) => (wake = f),
          () => moved,
        ))
      )
        return seen;
    }
  } finally {
    off();
  }
}

/** Until `wake` is called, `ms` at most; gives what `moved` is then. */
function woken(ms: number, onWake: (wake: () => void) => void, moved: () => boolean): Promise<boolean> {
  return new Promise((resolve) => {
    const wake = (): void => {
      clearTimeout(timer);
      resolve(moved());
    };
    const timer = setTimeout(wake, ms);
    onWake(wake);
  });
}
