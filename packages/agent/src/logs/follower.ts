/**
 * Follows the log of one deployment's container and sends its lines, until it is stopped. It always
 * reads as fast as the container prints; outbox.ts drops lines that exceed the limits.
 *
 *   container runs: read the engine's log ──log ends──▶ container removed: send `end` and stop
 *         ▲                                  └───▶ container exited: wait until it is restarted,
 *         │                                        then continue after the last line
 *         └────────────────────────────────────────┘
 */
import { randomUUID } from 'node:crypto';
import { defined } from '@berth/kit/defined';
import { backoff } from '@berth/kit/backoff';
import type { Logger } from '@berth/kit/log';
import { messageOf } from '@berth/kit/message-of';
import { createCursorCounter, isAfter, type LogCursor } from '@berth/wire/log-cursor';
import {
  MAX_LINE_CHARS,
  type LogBatch,
  type LogBatchAnswer,
  type LogWant,
} from '@berth/wire/runtime';
import { LABELS } from '@berth/wire/vocabulary';
import type { ListNodeContainers } from '../engine/node-ids.ts';
import { isTransient } from '../link/retry.ts';
import { createShownText, type ShownText } from '../secrets/shown-text.ts';
import { pause } from '../stopped.ts';
import type { Container, Docker } from '../engine/docker.ts';
import { type Budget, createBudget, type Rate } from './budget.ts';
import { engineTime, hasCursorTime, type CursorLine, runOf, sinceOf } from './history.ts';
import { createLineReader, type RawLine } from './line-reader.ts';
import {
  addLine,
  createOutbox,
  dropLine,
  flush,
  hasRoom,
  type Outbox,
  type Segment,
  takeBatch,
} from './outbox.ts';
import type { RedactOf } from '../secrets/secrets-of.ts';

export type Batch = Omit<LogBatch, 'node_id'>;
export type SendBatch = (key: string, batch: Batch, signal: AbortSignal) => Promise<LogBatchAnswer>;
export type FollowerDeps = {
  docker: Pick<Docker, 'logs'>;
  listContainers: ListNodeContainers;
  redactOf: RedactOf;
  send: SendBatch;
  /** Budget that all followers of the node share. */
  nodeBudget: Budget;
  rate?: Rate;
  /** Called when the engine has restarted the container. */
  onRestart?: (container: Container, startedAt: string) => void;
  log: Logger;
  flushMs?: number;
  lookMs?: number;
  /** Clock of this node in ms. */
  now?: () => number;
};
export type Follower = { stop(): void; done: Promise<void> };

export const FOLLOWER_RATE: Rate = { lines: 6_000, bytes: 1_500_000 };
const BURST_SECONDS = 1.5;
const FLUSH_MS = 200;
const KEEP_ALIVE_MS = 5_000;
const LOOK_MS = 1_000;
const MOST_LOOK_MS = 5_000;
/**
 * A new reader begins this many ms before its start, because the engine takes a moment to answer.
 */
const EARLIER_MS = 1_000;

/** State of one followed log. */
type Following = {
  want: LogWant;
  deps: FollowerDeps;
  signal: AbortSignal;
  epoch: string;
  now: () => number;
  flushMs: number;
  budget: Budget;
  box: Outbox;
  /** The newest line that was read, whether it was sent or dropped. */
  last: LogCursor | null;
  /** Time at which the log was first wanted. If no line is known, the first read begins here. */
  wantedSince: string;
  shown: ShownText;
  problem: string | null;
  hasEnded: boolean;
};

export function startFollower(want: LogWant, deps: FollowerDeps): Follower {
  const stopping = new AbortController();
  const stop = (): void => stopping.abort(new Error('the log is not wanted any more'));
  const now = deps.now ?? Date.now;
  const following: Following = {
    want,
    deps,
    signal: stopping.signal,
    epoch: randomUUID(),
    now,
    flushMs: deps.flushMs ?? FLUSH_MS,
    budget: createBudget(deps.rate ?? FOLLOWER_RATE, BURST_SECONDS),
    box: createOutbox(),
    last: null,
    wantedSince: engineTime(now() - (want.since_ago_ms ?? 0) - EARLIER_MS),
    shown: createShownText((text) => text),
    problem: null,
    hasEnded: false,
  };
  return { stop, done: run(following, stop) };
}

async function run(following: Following, stop: () => void): Promise<void> {
  const { signal, deps, want } = following;
  const reading = readAll(following)
    .catch((error: unknown) => {
      if (!signal.aborted) following.problem = `reading the log failed: ${messageOf(error)}`;
    })
    .finally(() => (following.hasEnded = true));
  await sendAll(following).catch((err: unknown) => {
    if (!signal.aborted)
      deps.log.warn({ err, deployment: want.deployment_id }, 'sending a runtime log failed');
  });
  stop();
  await reading;
}

/** Reads the container's log, and continues when the container is restarted. */
async function readAll(following: Following): Promise<void> {
  const { deps, want, signal } = following;
  let previous: Container | null = null;
  let looks = 0;
  while (!signal.aborted) {
    const container = await containerOf(deps.listContainers, want.deployment_id, signal);
    if (container === null && previous !== null) return;
    if (container === null) following.problem = 'its node has no container of this deployment';
    else if (
      isRunning(container) ||
      previous === null ||
      startOf(previous) !== startOf(container)
    ) {
      looks = 0;
      following.problem = null;
      sayRestart(deps, previous, container);
      previous = container;
      await read(following, container);
    }
    const wait = (deps.lookMs ?? LOOK_MS) * 2 ** Math.min(looks++, 4);
    await pause(Math.min(MOST_LOOK_MS, wait), signal);
  }
}

function sayRestart(deps: FollowerDeps, previous: Container | null, container: Container): void {
  if (previous?.id !== container.id || previous.startedAt === null) return;
  if (previous.startedAt !== container.startedAt) deps.onRestart?.(container, previous.startedAt);
}

/** The position at which a read begins, and the last line that was read before. */
type Begin = {
  since: string | null;
  /** The read skips the lines up to this cursor, which must be in the log. */
  after: LogCursor | null;
  /** True if the line of `after` was found; null if the first line of the read decides this. */
  isMet: boolean | null;
};

async function read(following: Following, container: Container): Promise<void> {
  const { deps, signal, box } = following;
  following.shown = createShownText(await deps.redactOf(container));
  flush(box);
  const begin = await beginOf(following, container);
  const cursorOf = createCursorCounter(runOf(container));
  let message: string | null = null;
  const reader = createLineReader({
    mayTake: (bytes, at) => passLine(following, begin, cursorOf(at), bytes),
    onLine: (line) => take(following, line),
    onMessage: (text) => (message ??= text),
  });
  const failed = await deps.docker.logs(container.id, {
    follow: true,
    tail: null,
    since: begin.since,
    until: null,
    onChunk: reader.chunk,
    signal,
  });
  reader.end();
  following.problem =
    failed === null ? null : `the engine does not show the log: ${message ?? failed}`;
}

async function beginOf(following: Following, container: Container): Promise<Begin> {
  const { box, last, want, wantedSince } = following;
  const run = runOf(container);
  // The container was started again, so all lines of this run are new.
  if (last !== null && last.run !== run) return { since: null, after: null, isMet: true };
  const after = last ?? wantedAfter(want, wantedSince, run);
  if (after === null) {
    box.link.after = { run, at: wantedSince, ordinal: -1 };
    return { since: wantedSince, after: null, isMet: true };
  }
  if (last === null) box.link.after = after;
  const since = sinceOf(after.at, following.now());
  if (since !== null) return { since, after, isMet: null };
  // The clock was set back: check whether the log still has the line.
  const { docker } = following.deps;
  const isMet = await hasCursorTime(docker, container, after.at, following.signal);
  return isMet ? { since, after, isMet } : { since, after: resetTo(box), isMet: true };
}

/**
 * Returns the cursor after which the control plane requests lines; null if the follower begins at
 * `wantedSince`.
 */
function wantedAfter(want: LogWant, wantedSince: string, run: string): LogCursor | null {
  if (want.after === null) return null;
  // A control plane that has received no line yet also needs the earlier lines.
  if (want.since_ago_ms !== null && wantedSince < want.after) return null;
  return { run, at: want.after, ordinal: -1 };
}

function resetTo(box: Outbox): null {
  box.link.reset = true;
  return null;
}

/** Decides about the engine's next line: skips an old line, drops it or sends it. */
function passLine(following: Following, begin: Begin, cursor: LogCursor, bytes: number): boolean {
  if (isOld(following.box, begin, cursor)) return false;
  following.last = cursor;
  const { box, budget, deps } = following;
  if (!hasRoom(box, bytes) || !budget.has(bytes) || !deps.nodeBudget.has(bytes)) {
    dropLine(box);
    return false;
  }
  budget.spend(bytes);
  deps.nodeBudget.spend(bytes);
  return true;
}

/**
 * Tells whether a line was read before. Records a reset if the log does not have the line of
 * `after`.
 */
function isOld(box: Outbox, begin: Begin, cursor: LogCursor): boolean {
  const { after } = begin;
  if (after === null) return false;
  if (begin.isMet === null && cursor.at === after.at) begin.isMet = true;
  if (!isAfter(cursor, after)) return true;
  if (begin.isMet === null) begin.after = resetTo(box);
  begin.isMet = true;
  return false;
}

function take({ last, box }: Following, line: RawLine): void {
  if (last !== null) addLine(box, { ...line, cursor: last });
}

async function sendAll(following: Following): Promise<void> {
  const { box, signal, flushMs } = following;
  let sentAt = -Infinity;
  while (!signal.aborted) {
    flush(box);
    const isLast = following.hasEnded && box.segments.length === 0;
    if (box.segments.length > 0 || isLast || performance.now() - sentAt > KEEP_ALIVE_MS) {
      const wait = await deliver(following, batchOf(following, takeBatch(box), isLast));
      sentAt = performance.now();
      if (isLast || wait === null) return;
      await pause(box.segments.length > 0 ? wait : Math.max(wait, flushMs), signal);
    } else await pause(flushMs, signal);
  }
}

function batchOf(following: Following, segment: Segment | null, isLast: boolean): Batch {
  const { epoch, box, problem, shown } = following;
  return {
    epoch,
    first: segment?.first ?? box.next,
    lines: (segment?.lines ?? []).map((line) => wireLine(line, shown)),
    after: segment === null ? box.link.after : segment.after,
    now: 0,
    ...defined({
      run: (segment?.lines[0]?.cursor ?? following.last ?? box.link.after)?.run,
      gap: segment?.gap === true ? true : undefined,
      reset: segment?.reset === true ? true : undefined,
      end: isLast ? true : undefined,
      problem: problem?.slice(0, 500),
    }),
  };
}

/** Converts a line to its form in a batch. */
export const wireLine = (
  { at, stream, text, cursor }: CursorLine,
  shown?: ShownText,
): LogBatch['lines'][number] => ({
  at,
  stream,
  text: shown === undefined ? text : shown(text, MAX_LINE_CHARS, true),
  ...defined({
    record: cursor.at === at ? undefined : cursor.at,
    ordinal: cursor.ordinal === 0 ? undefined : cursor.ordinal,
  }),
});

/**
 * Repeats the batch until it is answered. Returns the time in ms to wait; null if the log is no
 * longer wanted.
 */
async function deliver(following: Following, batch: Batch): Promise<number | null> {
  const { deps, want, signal, box } = following;
  for (let attempt = 0; ; attempt += 1) {
    try {
      const answer = await deps.send(want.key, { ...batch, now: following.now() }, signal);
      return answer.wanted ? answer.wait_ms : null;
    } catch (err) {
      if (signal.aborted) return null;
      if (!isTransient(err)) {
        deps.log.warn(
          { err, deployment: want.deployment_id },
          'the control plane refused lines of a runtime log; they are dropped',
        );
        return following.flushMs;
      }
      // Keep the waiting lines within their limits meanwhile.
      flush(box);
      await pause(backoff(attempt, { min: 250, max: 5_000 }), signal);
    }
  }
}

const isRunning = ({ state }: Container): boolean => state === 'running' || state === 'paused';
const startOf = ({ id, startedAt }: Container): string => `${id} ${startedAt}`;

/**
 * Returns the running container of a deployment, else the one that ran last; null if there is none.
 */
export async function containerOf(
  list: ListNodeContainers,
  deployment: string,
  signal: AbortSignal,
): Promise<Container | null> {
  const all = (await list({ [LABELS.deployment]: deployment }, signal)).filter(
    (c) => c.startedAt !== null,
  );
  const rank = (c: Container): string => `${c.state === 'running' ? 1 : 0} ${c.startedAt}`;
  return all.sort((a, b) => (rank(a) < rank(b) ? 1 : -1))[0] ?? null;
}
