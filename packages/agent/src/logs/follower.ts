/**
 * Follows the log of one deployment's container and sends its lines in numbered batches, until it
 * is stopped. It always reads as fast as the container prints. Lines beyond the budget, or that do
 * not fit into the buffer while the control plane does not answer, are counted: their numbers are
 * missing in the batches.
 *
 *   container runs: docker logs --follow ──ends──▶ container gone: say so (`end`) and stop
 *         ▲                                  └───▶ container exited: wait until it starts again, go on after the last line
 *         └──────────────────────────────────────────────┘
 */
import { randomUUID } from 'node:crypto';
import { defined } from '@berth/kit/defined';
import { backoff } from '@berth/kit/backoff';
import type { Logger } from '@berth/kit/log';
import { messageOf } from '@berth/kit/message-of';
import {
  MAX_BATCH_LINES,
  MAX_LINE_CHARS,
  type LogBatch,
  type LogBatchAnswer,
  type LogWant,
} from '@berth/wire/runtime';
import { LABELS } from '@berth/wire/vocabulary';
import type { ListNodeContainers } from '../engine/node-ids.ts';
import { isTransient } from '../link/retry.ts';
import { createShownText } from '../secrets/shown-text.ts';
import { pause } from '../stopped.ts';
import type { Container, Docker } from '../engine/docker.ts';
import { type Budget, createBudget, type Rate } from './budget.ts';
import { earlier, inOrder } from './history.ts';
import { createLineReader, type RawLine } from './line-reader.ts';
import type { RedactOf } from '../secrets/secrets-of.ts';

export type SendBatch = (
  key: string,
  batch: Omit<LogBatch, 'node_id'>,
  signal: AbortSignal,
) => Promise<LogBatchAnswer>;
export type FollowerDeps = {
  docker: Pick<Docker, 'logs'>;
  listContainers: ListNodeContainers;
  redactOf: RedactOf;
  send: SendBatch;
  /** Shared by all followers of the node. */
  nodeBudget: Budget;
  rate?: Rate;
  /** Called when the engine has started the container again. */
  onRestart?: (container: Container, startedAt: string) => void;
  log: Logger;
  flushMs?: number;
  lookMs?: number;
  /** Clock of this node, in ms. */
  now?: () => number;
};
export type Follower = { stop(): void; done: Promise<void> };

export const FOLLOWER_RATE: Rate = { lines: 6_000, bytes: 1_500_000 };
const BURST_SECONDS = 1.5;
const FLUSH_MS = 200;
const KEEP_ALIVE_MS = 5_000;
const LOOK_MS = 1_000;
const MOST_LOOK_MS = 5_000;
/** Bounds of the lines that wait for the control plane. */
const MAX_BUFFERED = { lines: 10_000, bytes: 2 * 1024 * 1024 };
const MAX_BATCH_BYTES = 512 * 1024;
/**
 * A new reader begins this long before its start: a first read at the same time overlaps with it.
 */
const OVERLAP_MS = 1_000;

/** Consecutive lines. */
type Segment = { first: number; lines: RawLine[]; bytes: number };

export function startFollower(want: LogWant, deps: FollowerDeps): Follower {
  const { flushMs = FLUSH_MS, lookMs = LOOK_MS, now: clock = Date.now, nodeBudget } = deps;
  const stopping = new AbortController();
  const { signal } = stopping;
  const epoch = randomUUID();
  /**
   * Where the first read begins: the engine may take seconds to answer, and the viewers miss what
   * the container prints meanwhile.
   */
  const wantedSince = earlier(timeOf(clock() - (want.since_ago_ms ?? 0)), OVERLAP_MS);
  const budget = createBudget(deps.rate ?? FOLLOWER_RATE, BURST_SECONDS);
  let shown = createShownText((text) => text);
  /** Read since the last flush. */
  let fresh: RawLine[] = [];
  let freshBytes = 0;
  /** Lines that were dropped before the first, after each whole part, and at the end of `fresh`. */
  let lost: number[] = [];
  const segments: Segment[] = [];
  let buffered = { lines: 0, bytes: 0 };
  let next = 0;
  const last: Record<RawLine['stream'], string> = { stdout: '', stderr: '' };
  let problem: string | null = null;
  let ended = false;

  /**
   * Lines of the time before, when a container starts again or a reader goes on after another one.
   */
  let repeatedUntil: Record<RawLine['stream'], string> | null = null;

  function add(line: RawLine): void {
    if (repeatedUntil !== null && line.at <= repeatedUntil[line.stream]) return;
    if (repeatedUntil !== null) repeatedUntil = { ...repeatedUntil, [line.stream]: '' };
    last[line.stream] = line.at;
    fresh.push(line);
    freshBytes += Math.min(line.text.length, MAX_LINE_CHARS);
  }
  function drop(): void {
    // A reader begins with number 0: a control plane that does not get it takes it for an older
    // reader. So the first losses come later.
    const part =
      next === 0
        ? Math.max(1, Math.ceil(fresh.length / MAX_BATCH_LINES))
        : Math.ceil(fresh.length / MAX_BATCH_LINES);
    lost[part] = (lost[part] ?? 0) + 1;
  }
  /**
   * Gives the lines since the last flush their numbers, and makes room. The numbers of dropped
   * lines come after those of their part: all lines that the container printed before the first
   * line of a batch have smaller numbers.
   */
  function flush(): void {
    if (fresh.length === 0 && lost.length === 0) return;
    const lines = inOrder(fresh);
    next += lost[0] ?? 0;
    for (let from = 0; from < lines.length || from === 0; from += MAX_BATCH_LINES) {
      const part = lines.slice(from, from + MAX_BATCH_LINES);
      const bytes = part.reduce((sum, line) => sum + Math.min(line.text.length, MAX_LINE_CHARS), 0);
      segments.push({ first: next, lines: part, bytes });
      next += part.length + (lost[from / MAX_BATCH_LINES + 1] ?? 0);
      buffered = { lines: buffered.lines + part.length, bytes: buffered.bytes + bytes };
    }
    [fresh, freshBytes, lost] = [[], 0, []];
    while (
      segments.length > 1 &&
      (buffered.lines > MAX_BUFFERED.lines || buffered.bytes > MAX_BUFFERED.bytes)
    )
      remove();
  }
  function remove(): void {
    const old = segments.shift();
    if (old !== undefined)
      buffered = { lines: buffered.lines - old.lines.length, bytes: buffered.bytes - old.bytes };
  }

  async function read(container: Container, since: string, tail: number | null): Promise<void> {
    let message: string | null = null;
    shown = createShownText(await deps.redactOf(container));
    const reader = createLineReader({
      mayTake(bytes) {
        if (freshBytes + bytes > MAX_BUFFERED.bytes || fresh.length >= MAX_BUFFERED.lines)
          return false;
        if (!budget.has(bytes) || !nodeBudget.has(bytes)) return false;
        budget.spend(bytes);
        nodeBudget.spend(bytes);
        return true;
      },
      onLine: add,
      onDropped: drop,
      onMessage: (text) => (message ??= text),
    });
    const failed = await deps.docker.logs(container.id, {
      follow: true,
      tail,
      since,
      until: null,
      onChunk: reader.chunk,
      signal,
    });
    reader.end();
    problem = failed === null ? null : `the engine does not show the log: ${message ?? failed}`;
  }

  async function readAll(): Promise<void> {
    let seen = false;
    let looks = 0;
    let previous: Container | null = null;
    while (!signal.aborted) {
      const container = await containerOf(deps.listContainers, want.deployment_id, signal);
      if (container === null) {
        if (seen) return;
        problem = 'its node has no container of this deployment';
      } else if (
        container.state === 'running' ||
        container.state === 'paused' ||
        previous === null ||
        startOf(previous) !== startOf(container)
      ) {
        seen = true;
        looks = 0;
        problem = null;
        if (
          previous?.id === container.id &&
          previous.startedAt !== null &&
          previous.startedAt !== container.startedAt
        )
          deps.onRestart?.(container, previous.startedAt);
        previous = container;
        const now = timeOf(clock());
        const newest = newestOf(last);
        const needsEarlier =
          want.after !== null && want.since_ago_ms !== null && wantedSince < want.after;
        const known = newest ?? (needsEarlier ? null : want.after);
        if (known !== null)
          repeatedUntil = newest === null ? { stdout: known, stderr: known } : { ...last };
        const from = known ?? wantedSince;
        // A position in the future: the clock was set back.
        const since = from > now ? earlier(now, OVERLAP_MS) : from;
        if (from > now) repeatedUntil = null;
        await read(
          container,
          since,
          known === null && want.since_ago_ms === null ? want.tail : null,
        );
      }
      await pause(Math.min(MOST_LOOK_MS, lookMs * 2 ** Math.min(looks++, 4)), signal);
    }
  }

  async function sendAll(): Promise<void> {
    let sentAt = -Infinity;
    while (!signal.aborted) {
      flush();
      const isLast = ended && segments.length === 0;
      if (segments.length > 0 || isLast || performance.now() - sentAt > KEEP_ALIVE_MS) {
        const wait = await deliver(takeBatch(isLast));
        sentAt = performance.now();
        if (isLast || wait === null) return;
        await pause(segments.length > 0 ? wait : Math.max(wait, flushMs), signal);
      } else await pause(flushMs, signal);
    }
  }
  /** Joins segments without a gap between them. */
  function takeBatch(isLast: boolean): Omit<LogBatch, 'node_id'> {
    const first = segments[0]?.first ?? next;
    const lines: RawLine[] = [];
    let bytes = 0;
    while (segments[0] !== undefined && segments[0].first === first + lines.length) {
      const [segment] = segments;
      if (
        lines.length > 0 &&
        (lines.length + segment.lines.length > MAX_BATCH_LINES ||
          bytes + segment.bytes > MAX_BATCH_BYTES)
      )
        break;
      for (const line of segment.lines)
        lines.push({ ...line, text: shown(line.text, MAX_LINE_CHARS, true) });
      bytes += segment.bytes;
      remove();
    }
    return {
      epoch,
      first,
      lines,
      now: 0,
      ...defined({
        end: isLast ? true : undefined,
        problem: problem === null ? undefined : problem.slice(0, 500),
      }),
    };
  }
  /**
   * Repeats the batch until it is answered. Returns how long to wait; null: nobody wants the log
   * any more.
   */
  async function deliver(batch: Omit<LogBatch, 'node_id'>): Promise<number | null> {
    for (let attempt = 0; ; attempt += 1) {
      try {
        const answer = await deps.send(want.key, { ...batch, now: clock() }, signal);
        return answer.wanted ? answer.wait_ms : null;
      } catch (error) {
        if (signal.aborted) return null;
        if (!isTransient(error)) {
          deps.log.warn(
            { err: error, deployment: want.deployment_id },
            'the control plane refused lines of a runtime log; they are dropped',
          );
          return flushMs;
        }
        // Meanwhile the buffer is kept within its bounds.
        flush();
        await pause(backoff(attempt, { min: 250, max: 5_000 }), signal);
      }
    }
  }

  async function run(): Promise<void> {
    const reading = readAll()
      .catch((error: unknown) => {
        if (!signal.aborted) problem = `reading the log failed: ${messageOf(error)}`;
      })
      .finally(() => (ended = true));
    await sendAll().catch((error: unknown) => {
      if (!signal.aborted)
        deps.log.warn(
          { err: error, deployment: want.deployment_id },
          'sending a runtime log failed',
        );
    });
    stopping.abort(new Error('the log is not wanted any more'));
    await reading;
  }
  return { stop: () => stopping.abort(new Error('the log is not wanted any more')), done: run() };
}

const timeOf = (ms: number): string => new Date(ms).toISOString().replace('Z', '000000Z');
const startOf = (container: Container): string => `${container.id} ${container.startedAt}`;
const newestOf = (last: Record<RawLine['stream'], string>): string | null =>
  (last.stdout > last.stderr ? last.stdout : last.stderr) || null;

/**
 * Returns the container of a deployment that runs, else the one that ran last; null if there is
 * none.
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
