/**
 * The newest lines of one log that an agent reads. All viewers of the log share them: a viewer is a
 * place in this buffer, so its cost does not depend on how far it is behind.
 *
 * Batches form a chain: each names the cursor before its first line. A batch can arrive twice (a
 * repeated request), late (from another control plane) or not at all. A batch whose predecessor is
 * missing waits for the predecessor for one second. Then its first line gets a seam: lines before
 * it are missing in this channel. A viewer that does not have these lines reads them from the
 * engine, or says that they are missing.
 */
import {
  covers,
  createCursorCounter,
  type CursorCounter,
  type LogCursor,
} from '@berth/wire/log-cursor';
import type { LogBatch, RuntimeStream } from '@berth/wire/runtime';

/**
 * Marks missing lines before a line of the channel. `gap`: the agent dropped lines. A cursor: the
 * lines up to this cursor did not arrive here.
 */
export type Seam = 'gap' | LogCursor;
export type ChannelLine = {
  at: string;
  stream: RuntimeStream;
  text: string;
  cursor: LogCursor;
  seam: Seam | null;
};
export type ChannelBounds = { lines: number; bytes: number };
type Batch = Omit<LogBatch, 'node_id'>;

/**
 * Counts of all channels: lines that arrived, and lines that the agent dropped or whose batch did
 * not arrive.
 */
export type Taken = { lines: number; lost: number };

export type Channel = {
  bounds: ChannelBounds;
  /** Wall clock of the control plane, in ms. */
  now: () => number;
  lines: ChannelLine[];
  /** Index of the first kept line; the lines before this index were dropped. */
  head: number;
  bytes: number;
  /** Position of the newest line: the number of lines that arrived. */
  tail: number;
  /** Cursor of the newest line. */
  end: LogCursor | null;
  taken: Taken;
  /** Id of the agent's present reader, and the ids of the readers before it. */
  epoch: string | null;
  earlierEpochs: string[];
  /** Number with which the next batch of this epoch must begin; null: any number. */
  expected: number | null;
  /** Assigns cursors to the lines of a 0.1.0 agent, which sends none. */
  cursorOf: CursorCounter;
  early: Map<number, Batch>;
  timer: NodeJS.Timeout | undefined;
  /** True after the agent said that it has sent the last line. */
  hasEnded: boolean;
  /** Why the agent cannot read the log; null if it can. */
  problem: string | null;
  /** Number of older lines in the range of a `read` that were not sent. */
  leftOut: number;
  /** With a `read`: cursor of the log's newest line; undefined if the agent does not send it. */
  last: LogCursor | null | undefined;
  /** With a `read`: the log no longer has the line after which the read must begin. */
  isReset: boolean;
  /** Monotonic time of the last batch, or of the beginning. */
  heardAt: number;
  /** Correction of the times of the node, in ms; 0 if its clock is right. */
  offset: number;
  listeners: Set<() => void>;
};

/**
 * How long a batch waits for its predecessor. A batch from another control plane can be overtaken
 * by its successor.
 */
const WAIT_FOR_GAP_MS = 1_000;
const MOST_EARLY = 4;
const MOST_EPOCHS = 4;
/** Ignored difference of the clocks: it can be the time that the batch took to arrive. */
const CLOCK_TOLERANCE_MS = 5_000;
/** Bytes of a line in memory, besides its text. */
const LINE_BYTES = 120;

export const createChannel = (bounds: ChannelBounds, now: () => number, taken: Taken): Channel => ({
  bounds,
  now,
  lines: [],
  head: 0,
  bytes: 0,
  tail: 0,
  end: null,
  taken,
  epoch: null,
  earlierEpochs: [],
  expected: null,
  cursorOf: createCursorCounter(''),
  early: new Map(),
  timer: undefined,
  hasEnded: false,
  problem: null,
  leftOut: 0,
  last: undefined,
  isReset: false,
  heardAt: performance.now(),
  offset: 0,
  listeners: new Set(),
});

/** Adds a batch of the agent to the channel. */
export function deliver(channel: Channel, batch: Batch): void {
  channel.taken.lines += batch.lines.length;
  if (channel.earlierEpochs.includes(batch.epoch)) return;
  channel.heardAt = performance.now();
  if (batch.epoch !== channel.epoch) beginEpoch(channel, batch);
  channel.early.set(batch.first, batch);
  appendEarly(channel, channel.early.size > MOST_EARLY);
  if (channel.early.size > 0)
    channel.timer ??= setTimeout(() => {
      channel.timer = undefined;
      appendEarly(channel, true);
      notify(channel);
    }, WAIT_FOR_GAP_MS);
  notify(channel);
}

function beginEpoch(channel: Channel, batch: Batch): void {
  if (channel.epoch !== null) channel.earlierEpochs.push(channel.epoch);
  if (channel.earlierEpochs.length > MOST_EPOCHS) channel.earlierEpochs.shift();
  // This reader ran before the channel began, so it did not send its first lines to this channel.
  channel.expected = channel.epoch === null && batch.first > 0 ? null : 0;
  channel.epoch = batch.epoch;
  channel.cursorOf = createCursorCounter('');
  channel.early.clear();
  channel.hasEnded = false;
  const off = channel.now() - batch.now;
  channel.offset = Math.abs(off) > CLOCK_TOLERANCE_MS ? Math.round(off / 1000) * 1000 : 0;
}

/** Appends the waiting batches, up to the first one whose predecessor is missing. */
function appendEarly(channel: Channel, isLate: boolean): void {
  const { early } = channel;
  for (const first of [...early.keys()].sort((a, b) => a - b)) {
    const batch = early.get(first);
    if (batch === undefined || (!isLate && !isNext(channel, batch))) break;
    early.delete(first);
    append(channel, batch);
  }
  if (early.size > 0) return;
  clearTimeout(channel.timer);
  channel.timer = undefined;
}

const isNext = ({ expected, end }: Channel, { first, after, reset }: Batch): boolean =>
  first <= (expected ?? 0) || reset === true || covers(end, after ?? null);

function append(channel: Channel, batch: Batch): void {
  const { first, lines, run, last, end, problem, reset = false } = batch;
  // The batch is repeated.
  if (first < (channel.expected ?? first)) return;
  if (lines.length > 0) {
    let seam = seamBefore(channel, batch);
    channel.taken.lost += first - (channel.expected ?? first);
    channel.expected = first + lines.length;
    for (const line of lines) {
      const { at, stream, text } = line;
      const cursor = cursorOf(channel, batch, line);
      if (!reset && covers(channel.end, cursor)) continue;
      channel.lines.push({ at, stream, text, cursor, seam });
      channel.end = cursor;
      channel.tail += 1;
      channel.bytes += text.length + LINE_BYTES;
      seam = null;
    }
    trim(channel);
  }
  channel.hasEnded ||= end === true;
  channel.problem = problem ?? null;
  channel.leftOut = batch.left_out ?? channel.leftOut;
  channel.last = last ?? (run === undefined ? undefined : null);
  channel.isReset ||= reset;
}

function cursorOf(
  channel: Channel,
  { run }: Batch,
  { at, record, ordinal }: LogBatch['lines'][number],
): LogCursor {
  return run === undefined
    ? channel.cursorOf(at)
    : { run, at: record ?? at, ordinal: ordinal ?? 0 };
}

/**
 * Returns the seam between the newest line of the channel and the batch; null if no lines are
 * missing.
 */
function seamBefore({ expected, end }: Channel, batch: Batch): Seam | null {
  const { run, first, lines, gap, reset, after = null } = batch;
  if (gap === true || reset === true) return 'gap';
  if (run !== undefined) return covers(end, after) ? null : after;
  if (expected !== null) return first > expected ? 'gap' : null;
  return { run: '', at: lines[0]?.at ?? '', ordinal: -1 };
}

/** Drops the oldest lines beyond the bounds. The line after them gets a seam. */
function trim(channel: Channel): void {
  const { bounds, lines } = channel;
  while (lines.length - channel.head > bounds.lines || channel.bytes > bounds.bytes) {
    const [old, next] = [lines[channel.head], lines[channel.head + 1]];
    if (old === undefined || next === undefined) break;
    channel.bytes -= old.text.length + LINE_BYTES;
    channel.head += 1;
    next.seam ??= old.cursor;
  }
  if (channel.head < 1_000 || channel.head * 2 < lines.length) return;
  channel.lines = lines.slice(channel.head);
  channel.head = 0;
}

/** Position of a viewer in the log. */
export type Place = {
  /** Cursor of the newest line that the viewer has; null: the log had no line. */
  last: LogCursor | null;
  /** Position of this line in the channel; null: the line did not come from the channel. */
  pos: number | null;
};
/** Consecutive lines of a channel. */
export type Stretch = {
  lines: ChannelLine[];
  /** Position of the last line. */
  pos: number;
  /**
   * State before the first line. `hole`: lines that the engine still has can be missing. `gap`: the
   * agent or this channel dropped lines.
   */
  before: 'nothing' | 'gap' | 'hole';
};

/** Returns the lines after the place up to the next seam, within the bounds. */
export function stretchAfter(
  channel: Channel,
  place: Place,
  max: number,
  maxBytes = Infinity,
): Stretch {
  const { lines, tail } = channel;
  const from = indexAfter(channel, place);
  let to = from;
  for (let size = 0; to < lines.length && to - from < max; to += 1) {
    const line = lines[to];
    size += (line?.text.length ?? 0) + LINE_BYTES;
    if (to > from && (line?.seam !== null || size > maxBytes)) break;
  }
  const before = beforeOf(lines[from], place, tail - (lines.length - from));
  return { lines: lines.slice(from, to), pos: tail - (lines.length - to), before };
}

/** `posBefore`: position of the line before `line`. */
function beforeOf(
  line: ChannelLine | undefined,
  { last, pos }: Place,
  posBefore: number,
): Stretch['before'] {
  if (line === undefined) return 'nothing';
  if (line.seam === 'gap' || (pos !== null && pos < posBefore)) return 'gap';
  if (line.seam === null || covers(last, line.seam)) return 'nothing';
  // The log was empty when the agent began to follow it, so no lines are missing.
  return last === null && line.seam.ordinal === -1 ? 'nothing' : 'hole';
}

/** Returns the index of the first line after a place. */
function indexAfter({ lines, head, tail }: Channel, { last, pos }: Place): number {
  if (pos !== null) return Math.max(head, lines.length - (tail - pos));
  let index = lines.length;
  while (index > head && !covers(last, lines[index - 1]?.cursor ?? null)) index -= 1;
  return index;
}

export const keptLines = ({ lines, head }: Channel): ChannelLine[] => lines.slice(head);

function notify({ listeners }: Channel): void {
  for (const listener of [...listeners]) listener();
}

export function closeChannel(channel: Channel): void {
  clearTimeout(channel.timer);
  channel.hasEnded = true;
  notify(channel);
}

/**
 * Resolves to true when the condition becomes true after a change of the channel, and to false
 * after `ms`.
 */
export async function waitFor(
  { listeners }: Channel,
  condition: () => boolean,
  ms: number,
  signal?: AbortSignal,
): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>();
  const check = (): void => (condition() ? resolve(true) : undefined);
  const stop = (): void => resolve(false);
  const timer = setTimeout(stop, ms);
  listeners.add(check);
  signal?.addEventListener('abort', stop, { once: true });
  try {
    check();
    if (signal?.aborted === true) stop();
    return await promise;
  } finally {
    listeners.delete(check);
    clearTimeout(timer);
    signal?.removeEventListener('abort', stop);
  }
}
