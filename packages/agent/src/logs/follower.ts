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
import type { Logger } from '@berth/kit/log';
import { messageOf } from '@berth/kit/message-of';
import { createCursorCounter, isAfter, type LogCursor } from '@berth/wire/log-cursor';
import {
  MAX_LINE_CHARS,
  type LogBatch,
  type LogBatchAnswer,
  type LogWant,
} from '@berth/wire/runtime';
import { instanceOfLabels, LABELS } from '@berth/wire/vocabulary';
import type { ListNodeContainers } from '../engine/node-ids.ts';
import { retryUntilAnswered } from '../link/retry.ts';
import { createShownText } from '../secrets/shown-text.ts';
import { pause } from '../stopped.ts';
import type { Container, Docker } from '../engine/docker.ts';
import { type Budget, createBudget } from './budget.ts';
import { engineTime, hasCursorTime, type CursorLine, runOf, sinceOf } from './history.ts';
import { createLineReader } from './line-reader.ts';
import { addLine, createOutbox, dropLine, type Outbox, takeBatch } from './outbox.ts';
import type { RedactOf } from '../secrets/secrets-of.ts';

export type Batch = Omit<LogBatch, 'node_id' | 'now'>;
export type SendBatch = (key: string, batch: Batch, signal: AbortSignal) => Promise<LogBatchAnswer>;
export type FollowerDeps = {
  docker: Pick<Docker, 'logs'>;
  listContainers: ListNodeContainers;
  redactOf: RedactOf;
  send: SendBatch;
  /** Budget that all followers of the node share. */
  nodeBudget: Budget;
  /** Called when the engine has restarted the container. */
  onRestart: (container: Container, startedAt: string) => void;
  log: Logger;
  /** Clock of this node in ms. */
  now: () => number;
};
export type Follower = { stop(): void; done: Promise<void> };

const FOLLOWER_RATE = { lines: 6_000, bytes: 1_500_000 };
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
  budget: Budget;
  box: Outbox;
  /** The newest line that was read, whether it was sent or dropped. */
  last: LogCursor | null;
  /** Time at which the log was first wanted. If no line is known, the first read begins here. */
  wantedSince: string;
  problem: string | null;
  hasEnded: boolean;
};

export function startFollower(want: LogWant, deps: FollowerDeps): Follower {
  const stopping = new AbortController();
  const stop = (): void => stopping.abort(new Error('the log is not wanted any more'));
  const following: Following = {
    want,
    deps,
    signal: stopping.signal,
    epoch: randomUUID(),
    budget: createBudget(FOLLOWER_RATE, BURST_SECONDS),
    box: createOutbox(),
    last: null,
    wantedSince: engineTime(deps.now() - (want.since_ago_ms ?? 0) - EARLIER_MS),
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
    const container = await containerOf(deps.listContainers, want, signal);
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
    const wait = LOOK_MS * 2 ** Math.min(looks++, 4);
    await pause(Math.min(MOST_LOOK_MS, wait), signal);
  }
}

function sayRestart(deps: FollowerDeps, previous: Container | null, container: Container): void {
  if (previous?.id !== container.id || previous.startedAt === null) return;
  if (previous.startedAt !== container.startedAt) deps.onRestart(container, previous.startedAt);
}

/** The position at which a read begins. */
type Begin = {
  since: string | null;
  /** The read skips the lines up to this cursor; null if all further lines are new. */
  after: LogCursor | null;
  /** True if the log has the line of `after`, as far as the read knows yet. */
  isMet: boolean;
};

async function read(following: Following, container: Container): Promise<void> {
  const { deps, signal, box } = following;
  const shown = createShownText(await deps.redactOf(container));
  const begin = await beginOf(following, container);
  const cursorOf = createCursorCounter(runOf(container));
  let cursor: LogCursor;
  let message: string | null = null;
  const reader = createLineReader({
    mayTake(bytes, at) {
      cursor = cursorOf(at);
      return passLine(following, begin, cursor, bytes);
    },
    onLine: (line) =>
      addLine(box, { ...line, text: shown(line.text, MAX_LINE_CHARS, true), cursor }),
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
  const { box, last, want, wantedSince, deps } = following;
  const run = runOf(container);
  // The container was started again, so all lines of this run are new.
  if (last !== null && last.run !== run) return { since: null, after: null, isMet: true };
  const after = last ?? wantedAfter(want, wantedSince, run);
  if (last === null) box.after = after ?? { run, at: wantedSince, ordinal: -1 };
  if (after === null) return { since: wantedSince, after, isMet: true };
  const since = sinceOf(after.at, deps.now());
  if (since !== null) return { since, after, isMet: false };
  // The clock was set back: check whether the log still has the line.
  if (await hasCursorTime(deps.docker, container, after.at, following.signal))
    return { since, after, isMet: true };
  box.before.reset = true;
  return { since, after: null, isMet: true };
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

/** Decides about the engine's next line: skips an old line, drops it or sends it. */
function passLine(following: Following, begin: Begin, cursor: LogCursor, bytes: number): boolean {
  const { box, budget, deps } = following;
  if (isOld(box, begin, cursor)) return false;
  following.last = cursor;
  if (box.isClosed || !budget.has(bytes) || !deps.nodeBudget.has(bytes)) {
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
  if (begin.after === null) return false;
  begin.isMet ||= cursor.at === begin.after.at;
  if (!isAfter(cursor, begin.after)) return true;
  box.before.reset ||= !begin.isMet;
  begin.after = null;
  return false;
}

async function sendAll(following: Following): Promise<void> {
  const { box, signal } = following;
  let sentAt = -Infinity;
  while (!signal.aborted) {
    box.isClosed = false;
    const isLast = following.hasEnded && box.waiting.length === 0;
    if (box.waiting.length > 0 || isLast || performance.now() - sentAt > KEEP_ALIVE_MS) {
      const wait = await deliver(following, nextBatch(following, isLast));
      sentAt = performance.now();
      if (isLast || wait === null) return;
      await pause(box.waiting.length > 0 ? wait : Math.max(wait, FLUSH_MS), signal);
    } else await pause(FLUSH_MS, signal);
  }
}

function nextBatch({ epoch, box, last, problem }: Following, isLast: boolean): Batch {
  const { lines, ...batch } = takeBatch(box);
  return {
    epoch,
    ...batch,
    lines: lines.map(wireLine),
    end: isLast,
    ...defined({
      run: (lines[0]?.cursor ?? last ?? batch.after)?.run,
      problem: problem?.slice(0, 500),
    }),
  };
}

/** Converts a line to its form in a batch. */
export const wireLine = ({ at, stream, text, cursor }: CursorLine): LogBatch['lines'][number] => ({
  at,
  stream,
  text,
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
  const send = (): Promise<LogBatchAnswer> => {
    box.isClosed = false;
    return deps.send(want.key, batch, signal);
  };
  try {
    const { wanted, wait_ms } = await retryUntilAnswered(send, { signal, maxMs: 5_000 });
    return wanted ? wait_ms : null;
  } catch (err) {
    if (signal.aborted) return null;
    deps.log.warn(
      { err, deployment: want.deployment_id },
      'the control plane refused lines of a runtime log; they are dropped',
    );
    return FLUSH_MS;
  }
}

const isRunning = ({ state }: Container): boolean => state === 'running' || state === 'paused';
const startOf = ({ id, startedAt }: Container): string => `${id} ${startedAt}`;

/**
 * Returns the running container that is wanted, else the one that ran last; null if there is none.
 */
export async function containerOf(
  list: ListNodeContainers,
  { deployment_id, instance }: Pick<LogWant, 'deployment_id' | 'instance'>,
  signal: AbortSignal,
): Promise<Container | null> {
  const all = (await list({ [LABELS.deployment]: deployment_id }, signal)).filter(
    ({ startedAt, labels }) =>
      startedAt !== null &&
      (instance === undefined || (instanceOfLabels(labels)?.id ?? null) === instance),
  );
  const rank = (c: Container): string => `${c.state === 'running' ? 1 : 0} ${c.startedAt}`;
  return all.sort((a, b) => (rank(a) < rank(b) ? 1 : -1))[0] ?? null;
}
