/**
 * Requests that are answered later: long polls and streams. Each hold ends when its client goes away or the server closes,
 * whichever is first. There are never more than MAX_HOLDS of them, and no more than MOST_OF_ONE of one person or one address.
 */
import type { ServerResponse } from 'node:http';
import type { Changes, Topic } from '../domain/changes.ts';

const MAX_HOLDS = 20_000;
/** Agents and gateways share MAX_HOLDS with everybody who can read, so nobody else may take all of it. */
const MOST_OF_ONE = 100;

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
  /** `holder`: a person or an address, where anybody may ask; absent for agents and gateways. null: too many are held already. Call `release` in a `finally`. */
  begin(kind: HoldKind, response: ServerResponse, holder?: string): Hold | null;
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
  const ofHolder = new Map<string, number>();
  const held = new WeakSet<ServerResponse>();
  let closed = false;
  function letGo(holder: string): void {
    const left = (ofHolder.get(holder) ?? 1) - 1;
    if (left > 0) ofHolder.set(holder, left);
    else ofHolder.delete(holder);
  }
  return {
    begin(kind, response, holder) {
      const others = holder === undefined ? 0 : (ofHolder.get(holder) ?? 0);
      if (open.size >= max || others >= MOST_OF_ONE) return null;
      if (holder !== undefined) ofHolder.set(holder, others + 1);
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
          if (open.delete(mine) && holder !== undefined) letGo(holder);
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
