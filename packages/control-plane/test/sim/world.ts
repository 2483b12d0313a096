/**
 * Simulated time, and the order of turns. Nothing waits for a real clock: a sleep is an entry in
 * `due`, a call to the database waits in `turns`, and the seed decides which goes next. So
 * decisions of the control plane overlap in ever new ways, and the same seed repeats the same
 * overlaps. Where calls run at once (`atOnce`), the server decides too.
 *
 * A life is a process: when it ends, its waits never end, as after kill -9.
 */
import type { Random } from './random.ts';

export type Life = { name: string; alive: boolean };
export type World = {
  random: Random;
  now(): number;
  /** Calls `run` after `ms` if `life` still lives. */
  after(ms: number, life: Life, run: () => void): void;
  sleep(ms: number, life: Life): Promise<void>;
  /** Waits for this life's turn at the database. */
  turn(life: Life): Promise<void>;
  /** Wraps a call to the database, so that the world waits for its end. */
  during<T>(call: () => Promise<T>): Promise<T>;
  /** Runs until the clock reaches `end` or `done` returns true. */
  run(end: number, done?: () => boolean): Promise<void>;
  steps(): number;
};

const turnOfEventLoop = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

type Entry = { at: number; seq: number; life: Life; run: () => void };
/** Probability that the next event happens before a call that waits for the database. */
const OVERTAKE = 0.15;
/** The same where calls run at once: they are collected first, so that they overlap. */
const GATHER = 0.6;
/** The event must be due within this time. */
const OVERTAKE_WITHIN_MS = 500;

export function createWorld(
  random: Random,
  start: number,
): World & { atOnce(calls: number): void } {
  let clock = start;
  let seq = 0;
  let steps = 0;
  let busy = 0;
  let idle = (): void => {};
  let callsAtOnce = 1;
  const due: Entry[] = [];
  let turns: { life: Life; go: () => void }[] = [];

  // Whole milliseconds, like the clocks of computers.
  const after = (ms: number, life: Life, run: () => void): void =>
    push(due, { at: clock + Math.max(0, Math.ceil(ms)), seq: seq++, life, run });
  const quiet = async (): Promise<void> => {
    for (;;) {
      // The next tick comes after all promises that can continue; where a server answers, its
      // answer comes in a turn of the event loop.
      await (callsAtOnce === 1
        ? new Promise<void>((resolve) => process.nextTick(resolve))
        : turnOfEventLoop());
      if (busy === 0) return;
      // A server works on the call: do not check again and again whether it is done.
      await new Promise<void>((resolve) => {
        idle = resolve;
      });
    }
  };

  return {
    random,
    now: () => clock,
    after,
    sleep: (ms, life) => new Promise((resolve) => after(ms, life, resolve)),
    turn: (life) => new Promise((go) => turns.push({ life, go })),
    async during(call) {
      busy += 1;
      try {
        return await call();
      } finally {
        busy -= 1;
        if (busy === 0) idle();
      }
    },
    async run(end, done = () => false) {
      // Lets the supervisor of this process (a test's time limit, a signal) run.
      await turnOfEventLoop();
      for (;;) {
        await quiet();
        steps += 1;
        turns = turns.filter((t) => t.life.alive);
        while (due[0] !== undefined && !due[0].life.alive) pop(due);
        const next = due[0];
        const overtakes =
          next !== undefined &&
          next.at <= clock + OVERTAKE_WITHIN_MS &&
          random.chance(callsAtOnce === 1 ? OVERTAKE : GATHER);
        if (turns.length > 0 && !overtakes) {
          const calls = callsAtOnce === 1 ? 1 : random.int(1, callsAtOnce);
          for (let n = 0; n < calls && turns.length > 0; n++)
            turns.splice(random.int(0, turns.length - 1), 1)[0]?.go();
          continue;
        }
        if (next === undefined || next.at > end || (turns.length === 0 && done())) {
          if (turns.length > 0) continue;
          if (!done()) clock = Math.max(clock, end);
          return;
        }
        pop(due);
        clock = Math.max(clock, next.at);
        next.run();
      }
    },
    steps: () => steps,
    atOnce(calls) {
      callsAtOnce = calls;
    },
  };
}

const before = (a: Entry, b: Entry): boolean => a.at < b.at || (a.at === b.at && a.seq < b.seq);

/** Adds to a binary heap: the earliest entry comes first. */
function push(heap: Entry[], entry: Entry): void {
  let i = heap.push(entry) - 1;
  while (i > 0) {
    const parent = (i - 1) >> 1;
    const above = heap[parent] as Entry;
    if (!before(entry, above)) break;
    heap[i] = above;
    i = parent;
  }
  heap[i] = entry;
}

function pop(heap: Entry[]): void {
  const last = heap.pop();
  if (last === undefined || heap.length === 0) return;
  let i = 0;
  for (;;) {
    let child = 2 * i + 1;
    const right = heap[child + 1];
    if (right !== undefined && before(right, heap[child] as Entry)) child += 1;
    const below = heap[child];
    if (below === undefined || !before(below, last)) break;
    heap[i] = below;
    i = child;
  }
  heap[i] = last;
}
