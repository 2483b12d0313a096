/** Reads a part of a container's log once: the newest lines of a range, within limits. */
import { createCursorCounter, type CursorCounter, type LogCursor } from '@berth/wire/log-cursor';
import { MAX_LINE_CHARS, type RuntimeStream } from '@berth/wire/runtime';
import type { Container, Docker } from '../engine/docker.ts';
import { createLineReader, PIECE, type RawLine } from './line-reader.ts';
import type { ShownText } from '../secrets/shown-text.ts';

export type Range = {
  /** Maximum number of lines. If there are more, the newest are returned. */
  tail: number;
  since: string | null;
  until: string | null;
  /** Time of a cursor: the range begins there. `since` must be `sinceOf(after)`. */
  after: string | null;
  stream: RuntimeStream | null;
};
export type CursorLine = RawLine & { cursor: LogCursor };
export type History = {
  lines: CursorLine[];
  /** Minimum number of older lines in the range that are not in `lines`. */
  leftOut: number;
  /** The cursor of the newest line of the log, even if it is not in `lines`; null if unknown. */
  last: LogCursor | null;
  /**
   * True if the log does not have the line of `after`: lines might be missing before the first
   * line.
   */
  isReset: boolean;
  problem: string | null;
};
export type HistoryDeps = { docker: Pick<Docker, 'logs'>; shown: ShownText };

/** Maximum size in bytes of the lines that are kept while the log is read. */
const MOST_BYTES = 3 * 1024 * 1024;
/**
 * Tolerance in ms: engines before version 23 compare each line with `since`, and the two streams
 * can differ slightly in time.
 */
const DISORDER_MS = 1;

/**
 * Returns the time `ms` earlier, with nine decimal places like the engine's times, so that times
 * compare as texts.
 */
export const earlier = (at: string, ms: number): string => engineTime(Date.parse(at) - ms);
export const engineTime = (ms: number): string =>
  new Date(ms).toISOString().replace('Z', '000000Z');
export const runOf = ({ id }: Pick<Container, 'id'>): string => id.slice(0, 12);

/**
 * Returns the `since` with which the engine shows all lines from a cursor's time on. Returns null,
 * for the whole log, if the node's clock was set back: new lines then have earlier times.
 */
export const sinceOf = (at: string, now: number): string | null =>
  at > engineTime(now) ? null : earlier(at, DISORDER_MS);

export async function readHistory(
  { docker, shown }: HistoryDeps,
  container: Pick<Container, 'id'>,
  range: Range,
  signal: AbortSignal,
  mostBytes = MOST_BYTES,
): Promise<History> {
  const read: Read = (since, tail) =>
    readLines(docker, container, { ...range, since, mostBytes, engineTail: tail }, signal);
  const kept = isTailOnly(range)
    ? await readTail(read, range.tail)
    : await readFrom(read, range.since);
  const lines = newestOf(kept);
  return {
    lines: lines.map((line) => ({ ...line, text: shown(line.text, MAX_LINE_CHARS, true) })),
    leftOut: kept.count - lines.length,
    last: kept.last,
    isReset: range.after !== null && !kept.hasBegin,
    problem: kept.problem,
  };
}

const isTailOnly = ({ since, until, after, stream }: Range): boolean =>
  since === null && until === null && after === null && stream === null;

type Read = (since: string | null, tail: number | null) => Promise<Kept>;

/**
 * Reads the newest lines. The engine reads the end of a log fast, but cursors count from the first
 * line after a `since` (log-cursor.ts). If the first read does not contain the whole log, a second
 * read begins at the time of its first line.
 */
async function readTail(read: Read, tail: number): Promise<Kept> {
  // Request one more line to see whether there are older lines.
  const end = await read(null, tail + 1);
  // The engine counts each piece of a long line as a line.
  const isWhole = end.entries <= tail && !end.hasLongLine;
  if (isWhole || end.firstAt === null || end.problem !== null) return end;
  return read(end.firstAt, null);
}

/**
 * Reads the lines from a time on. If there are none, reads the end of the log to find where new
 * lines begin.
 */
async function readFrom(read: Read, since: string | null): Promise<Kept> {
  const kept = await read(since, null);
  if (kept.last !== null || since === null || kept.problem !== null) return kept;
  const { last } = await readTail(read, 0);
  // New lines have arrived meanwhile.
  if (last !== null && last.at >= since) return read(since, null);
  return { ...kept, last };
}

type LineRange = Range & { mostBytes: number; engineTail: number | null };

async function readLines(
  docker: Pick<Docker, 'logs'>,
  container: Pick<Container, 'id'>,
  range: LineRange,
  signal: AbortSignal,
): Promise<Kept> {
  const kept = createKept(runOf(container), range);
  let message: string | null = null;
  const reader = createLineReader({
    mayTake: (bytes, at) => passLine(kept, bytes, at),
    onLine: (line) => keep(kept, line),
    onMessage: (text) => (message ??= text),
  });
  const problem = await docker.logs(container.id, {
    follow: false,
    tail: range.engineTail,
    since: range.since,
    until: range.until,
    onChunk: reader.chunk,
    signal,
  });
  reader.end();
  kept.problem = problem === null ? null : (message ?? problem);
  return kept;
}

/** State of a read: the newest lines of the range. */
type Kept = {
  range: LineRange;
  cursorOf: CursorCounter;
  lines: CursorLine[];
  /** Index of the first line that was not dropped. */
  head: number;
  bytes: number;
  /** Number of lines in the range, including dropped lines. */
  count: number;
  /** Number of lines of both streams that the engine returned, and the time of the first line. */
  entries: number;
  firstAt: string | null;
  hasLongLine: boolean;
  /** True if the log has the line of `after`. */
  hasBegin: boolean;
  last: LogCursor | null;
  problem: string | null;
};

const createKept = (run: string, range: LineRange): Kept => ({
  range,
  cursorOf: createCursorCounter(run),
  lines: [],
  head: 0,
  bytes: 0,
  count: 0,
  entries: 0,
  firstAt: null,
  hasLongLine: false,
  hasBegin: false,
  last: null,
  problem: null,
});

const newestOf = ({ lines, head }: Kept): CursorLine[] => lines.slice(head);

/** Gives the engine's next line its cursor. Restarts the range at the line of `after`. */
function passLine(kept: Kept, bytes: number, at: string): true {
  kept.firstAt ??= at;
  kept.entries += 1;
  kept.hasLongLine ||= bytes >= PIECE;
  kept.last = kept.cursorOf(at);
  if (kept.last.at !== kept.range.after || kept.last.ordinal !== 0) return true;
  kept.hasBegin = true;
  [kept.lines, kept.head, kept.bytes, kept.count] = [[], 0, 0, 0];
  return true;
}

function keep(kept: Kept, line: RawLine): void {
  const { stream, tail, mostBytes } = kept.range;
  if (kept.last === null || (stream !== null && line.stream !== stream)) return;
  kept.count += 1;
  kept.lines.push({ ...line, cursor: kept.last });
  kept.bytes += line.text.length;
  while (kept.lines.length > kept.head && isFull(kept, tail, mostBytes)) dropOldest(kept);
}

const isFull = ({ lines, head, bytes }: Kept, tail: number, mostBytes: number): boolean =>
  lines.length - head > tail || bytes > mostBytes;

function dropOldest(kept: Kept): void {
  kept.bytes -= kept.lines[kept.head]?.text.length ?? 0;
  kept.head += 1;
  if (kept.head < 2_000 || kept.head * 2 < kept.lines.length) return;
  kept.lines = kept.lines.slice(kept.head);
  kept.head = 0;
}

/** Tells whether the log has a line whose cursor has the time `at`. */
export async function hasCursorTime(
  docker: Pick<Docker, 'logs'>,
  container: Pick<Container, 'id'>,
  at: string,
  signal: AbortSignal,
): Promise<boolean> {
  const range = { tail: 0, since: null, until: null, stream: null, after: at };
  const whole = { ...range, mostBytes: 0, engineTail: null };
  return (await readLines(docker, container, whole, signal)).hasBegin;
}
