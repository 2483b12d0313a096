/**
 * Queues the lines of a followed log for the control plane, as a chain of batches. Drops lines that
 * exceed the rate, or that do not fit while the control plane does not answer; the next batch
 * reports the gap before it.
 * After a dropped line, all lines up to the next flush are dropped too. A container that floods its
 * log therefore shows blocks of consecutive lines with one gap between them.
 */
import type { LogCursor } from '@berth/wire/log-cursor';
import { MAX_BATCH_LINES, MAX_LINE_CHARS } from '@berth/wire/runtime';
import type { CursorLine } from './history.ts';

/** Limits of the lines that wait for the control plane. */
const MAX_WAITING = { lines: 10_000, bytes: 2 * 1024 * 1024 };
const MAX_BATCH_BYTES = 512 * 1024;

/** Consecutive lines of one container. */
export type Segment = {
  /** Number of the first line, counting dropped lines too. */
  first: number;
  after: LogCursor | null;
  gap: boolean;
  reset: boolean;
  lines: CursorLine[];
  bytes: number;
};

export type Outbox = {
  segments: Segment[];
  waiting: { lines: number; bytes: number };
  /** Lines that were read since the last flush. */
  fresh: CursorLine[];
  freshBytes: number;
  /** True if a line was dropped since the last flush: the lines after it are dropped too. */
  isClosed: boolean;
  /** Dropped lines that are not numbered yet. */
  dropped: number;
  /** Number of the next line. */
  next: number;
  /** Describes what precedes the next segment. */
  link: Pick<Segment, 'after' | 'gap' | 'reset'>;
};

export const createOutbox = (): Outbox => ({
  segments: [],
  waiting: { lines: 0, bytes: 0 },
  fresh: [],
  freshBytes: 0,
  isClosed: false,
  dropped: 0,
  next: 0,
  link: { after: null, gap: false, reset: false },
});

/** Tells whether a line of this size fits now. */
export const hasRoom = ({ isClosed, fresh, freshBytes }: Outbox, bytes: number): boolean =>
  !isClosed && fresh.length < MAX_WAITING.lines && freshBytes + bytes <= MAX_WAITING.bytes;

export function dropLine(box: Outbox): void {
  box.isClosed = true;
  box.dropped += 1;
}

export function addLine(box: Outbox, line: CursorLine): void {
  box.fresh.push(line);
  box.freshBytes += sizeOf(line);
}

/**
 * Turns the lines since the last flush into segments, and drops the oldest segments beyond the
 * limits.
 */
export function flush(box: Outbox): void {
  for (let from = 0; from < box.fresh.length; from += MAX_BATCH_LINES)
    addSegment(box, box.fresh.slice(from, from + MAX_BATCH_LINES));
  box.link.gap ||= box.isClosed;
  [box.fresh, box.freshBytes, box.isClosed] = [[], 0, false];
  // A reader must begin with number 0: control plane 0.1.0 takes a batch with any other first
  // number for a batch of an older reader.
  if (box.next > 0) [box.next, box.dropped] = [box.next + box.dropped, 0];
  while (box.segments.length > 1 && isOver(box.waiting)) dropOldest(box);
}

function addSegment(box: Outbox, lines: CursorLine[]): void {
  const bytes = lines.reduce((sum, line) => sum + sizeOf(line), 0);
  box.segments.push({ first: box.next, ...box.link, lines, bytes });
  box.waiting = { lines: box.waiting.lines + lines.length, bytes: box.waiting.bytes + bytes };
  box.next += lines.length;
  box.link = { after: lines.at(-1)?.cursor ?? null, gap: false, reset: false };
}

function dropOldest(box: Outbox): void {
  const old = takeSegment(box);
  const [oldest] = box.segments;
  if (oldest === undefined || old === undefined) return;
  oldest.gap = true;
  oldest.reset ||= old.reset;
}

function takeSegment(box: Outbox): Segment | undefined {
  const segment = box.segments.shift();
  if (segment === undefined) return undefined;
  const { lines, bytes } = box.waiting;
  box.waiting = { lines: lines - segment.lines.length, bytes: bytes - segment.bytes };
  return segment;
}

/** Removes and returns the oldest consecutive lines, up to one batch; null if no line waits. */
export function takeBatch(box: Outbox): Segment | null {
  const batch = takeSegment(box);
  if (batch === undefined) return null;
  for (let [next] = box.segments; next !== undefined && fits(batch, next); [next] = box.segments) {
    batch.lines = [...batch.lines, ...next.lines];
    batch.bytes += next.bytes;
    takeSegment(box);
  }
  return batch;
}

const fits = (batch: Segment, next: Segment): boolean =>
  !next.gap &&
  !next.reset &&
  batch.lines[0]?.cursor.run === next.lines[0]?.cursor.run &&
  batch.lines.at(-1)?.cursor === next.after &&
  batch.lines.length + next.lines.length <= MAX_BATCH_LINES &&
  batch.bytes + next.bytes <= MAX_BATCH_BYTES;

const sizeOf = ({ text }: CursorLine): number => Math.min(text.length, MAX_LINE_CHARS);
const isOver = ({ lines, bytes }: Outbox['waiting']): boolean =>
  lines > MAX_WAITING.lines || bytes > MAX_WAITING.bytes;
