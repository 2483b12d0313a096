/**
 * Queues the lines of a followed log for the control plane, as a chain of batches. Drops lines that
 * exceed the rate, and the oldest ones while the control plane does not answer; the next batch
 * reports the gap before it.
 * After a dropped line, all lines are dropped until the queue is opened again. A container that
 * floods its log therefore shows blocks of consecutive lines with one gap between them.
 */
import type { LogCursor } from '@berth/wire/log-cursor';
import { MAX_BATCH_LINES, MAX_LINE_CHARS } from '@berth/wire/runtime';
import type { CursorLine } from './history.ts';

/** Limits of the lines that wait for the control plane. */
const MAX_WAITING = { lines: 10_000, bytes: 2 * 1024 * 1024 };
const MAX_BATCH_BYTES = 512 * 1024;

/** Describes what precedes a line: dropped lines, or a log without the line to begin after. */
type Before = { dropped: number; reset: boolean };
type Waiting = Before & { line: CursorLine };

export type Outbox = {
  waiting: Waiting[];
  bytes: number;
  isClosed: boolean;
  /** Describes what precedes the next line. */
  before: Before;
  /** Number of the next line that is sent, counting dropped lines too. */
  next: number;
  /** Cursor of the line before the next line that is sent. */
  after: LogCursor | null;
};

export const createOutbox = (): Outbox => ({
  waiting: [],
  bytes: 0,
  isClosed: false,
  before: { dropped: 0, reset: false },
  next: 0,
  after: null,
});

export function dropLine(box: Outbox): void {
  box.isClosed = true;
  box.before.dropped += 1;
}

export function addLine(box: Outbox, line: CursorLine): void {
  const { waiting, before } = box;
  waiting.push({ ...before, line });
  box.before = { dropped: 0, reset: false };
  box.bytes += sizeOf(line);
  if (waiting.length > MAX_WAITING.lines || box.bytes > MAX_WAITING.bytes) dropOldest(box);
}

/** Drops an eighth of the lines, because each removal moves all others. */
function dropOldest(box: Outbox): void {
  const old = remove(box, Math.floor(box.waiting.length / 8));
  const [oldest] = box.waiting;
  if (oldest === undefined) return;
  oldest.dropped += old.reduce((sum, { dropped }) => sum + dropped + 1, 0);
  oldest.reset ||= old.some(({ reset }) => reset);
}

function remove(box: Outbox, count: number): Waiting[] {
  const removed = box.waiting.splice(0, count);
  box.bytes -= removed.reduce((sum, { line }) => sum + sizeOf(line), 0);
  return removed;
}

/** Removes and returns the oldest consecutive lines of one container, up to one batch. */
export function takeBatch(box: Outbox) {
  const { waiting, next, after } = box;
  const [head] = waiting;
  if (head === undefined) return { first: next, after, gap: false, reset: false, lines: [] };
  const { dropped, reset } = head;
  let bytes = 0;
  const end = waiting.findIndex(({ line, ...before }, i) => {
    bytes += sizeOf(line);
    if (i === 0) return false;
    const isApart = before.dropped > 0 || before.reset || line.cursor.run !== head.line.cursor.run;
    return isApart || i === MAX_BATCH_LINES || bytes > MAX_BATCH_BYTES;
  });
  const lines = remove(box, end === -1 ? waiting.length : end).map(({ line }) => line);
  box.next += dropped + lines.length;
  box.after = lines.at(-1)?.cursor ?? after;
  // A reader must begin with number 0: control plane 0.1.0 takes a batch with any other first
  // number for a batch of an older reader.
  return { first: next === 0 ? 0 : next + dropped, after, gap: dropped > 0, reset, lines };
}

const sizeOf = ({ text }: CursorLine): number => Math.min(text.length, MAX_LINE_CHARS);
