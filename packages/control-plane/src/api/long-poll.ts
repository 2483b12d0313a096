/**
 * Held requests: long polls and streams. A hold ends when its client disconnects or the server
 * closes. At most MAX_HOLDS are open, and at most MAX_HOLDS_OF_ONE for each person or address.
 */
import type { ServerResponse } from 'node:http';
import { createRefCounts } from '@berth/kit/ref-count';
import type { Changes, Topic } from '../domain/platform/changes.ts';

const MAX_HOLDS = 20_000;
/**
 * Agents, gateways and all readers share MAX_HOLDS. This limit keeps one reader from taking all
 * holds.
 */
const MAX_HOLDS_OF_ONE = 100;

export type HoldKind = 'tasks' | 'config' | 'logs' | 'policy' | 'deployments' | 'events';
export type Hold = {
  /**
   * True after the client disconnected, the server closed or `release` was called. The handler must
   * then answer with the current state.
   */
  ended(): boolean;
  /**
   * Calls `listener` when the hold ends, or at once if it has ended. A second listener replaces the
   * first. Cheaper than `signal`.
   */
  onEnd(listener: () => void): void;
  /** Aborts when the hold ends. Created on first use: with 10,000 polls its cost is measurable. */
  readonly signal: AbortSignal;
  release(): void;
};

export type Holds = {
  /**
   * Begins a hold. Returns null if too many requests are held. Call `release` in a `finally`.
   * `holder`: the person or address to count; absent for agents and gateways, which have no limit
   * of their own.
   */
  begin(kind: HoldKind, response: ServerResponse, holder?: string): Hold | null;
  counts(): Record<HoldKind, number>;
  /**
   * Returns whether the request was held. Its duration is then a waiting time and not a response
   * time.
   */
  wasHeld(response: ServerResponse): boolean;
  /** Ends all holds, and each later hold as soon as it begins. */
  closeAll(): void;
  closed(): boolean;
};

type Open = { kind: HoldKind; end: () => void };

export function createHolds(max = MAX_HOLDS): Holds {
  const open = new Set<Open>();
  const heldBy = createRefCounts();
  const held = new WeakSet<ServerResponse>();
  let closed = false;
  return {
    begin(kind, response, holder) {
      const others = holder === undefined ? 0 : heldBy.count(holder);
      if (open.size >= max || others >= MAX_HOLDS_OF_ONE) return null;
      const uncount = holder === undefined ? undefined : heldBy.add(holder);
      let ended = false;
      let abort: AbortController | null = null;
      let listener: (() => void) | null = null;
      const end = (): void => {
        if (ended) return;
        ended = true;
        abort?.abort();
        listener?.();
      };
      const entry: Open = { kind, end };
      open.add(entry);
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
          if (open.delete(entry)) uncount?.();
          response.off('close', end);
          end();
        },
      };
    },
    counts() {
      const counts: Record<HoldKind, number> = {
        tasks: 0,
        config: 0,
        logs: 0,
        policy: 0,
        deployments: 0,
        events: 0,
      };
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
 * Reads now and after every notification of the topic until `isNew` is true, `waitMs` has passed or
 * the hold ends. Returns the last result. For changes by other control planes, the loop task-watch
 * sends the notifications.
 */
export async function readUntil<T>(
  read: () => Promise<T>,
  isNew: (result: T) => boolean,
  until: { changes: Pick<Changes, 'on'>; topic: Topic; waitMs: number; hold: Hold },
): Promise<T> {
  const end = performance.now() + until.waitMs;
  let notified = false;
  let wake = (): void => {};
  // Subscribe before the read, so that no change during it is missed.
  const unsubscribe = until.changes.on(until.topic, () => {
    notified = true;
    wake();
  });
  until.hold.onEnd(() => wake());
  try {
    for (;;) {
      notified = false;
      const result = await read();
      const remainingMs = end - performance.now();
      if (isNew(result) || remainingMs <= 0 || until.hold.ended()) return result;
      if (notified) continue;
      await sleepUntilWoken(remainingMs, (f) => (wake = f));
      // Without a notification the last result is still current.
      if (!notified) return result;
    }
  } finally {
    unsubscribe();
  }
}

/** Resolves when the function passed to `onWake` is called, and after `ms` at the latest. */
function sleepUntilWoken(ms: number, onWake: (wake: () => void) => void): Promise<void> {
  return new Promise((resolve) => {
    const wake = (): void => {
      clearTimeout(timer);
      resolve();
    };
    const timer = setTimeout(wake, ms);
    onWake(wake);
  });
}
