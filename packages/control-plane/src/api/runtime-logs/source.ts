/**
 * The log of one instance for one viewer: the lines before now, then the new ones, as one
 * sequence of cursors. The new lines come from a channel. If the channel has a hole after the
 * newest line shown, the source reads the missing lines from the engine once. It announces lines
 * that are missing there too.
 */
import { setImmediate, setTimeout as sleep } from 'node:timers/promises';
import { covers, type LogCursor } from '@berth/wire/log-cursor';
import { DEFAULT_TAIL, type LostLines, MAX_TAIL } from '@berth/wire/runtime';
import { DomainError } from '../../domain/platform/errors.ts';
import type { NodeRecord } from '../../domain/platform/records.ts';
import type { SseEvent } from '../sse.ts';
import { type Channel, type ChannelLine, type Place, stretchAfter, waitFor } from './channel.ts';
import { correctedTime, lineView, rangeOf } from './lines.ts';
import type { ReadResult } from './readers.ts';
import { resumeId } from './resume-id.ts';
import type { MergeMember } from './merge.ts';
import { nameBefore, readableNode, type Target } from './targets.ts';
import { checkRights, inTime, send, sendGone, type Viewer } from './viewer.ts';

export type Source = {
  viewer: Viewer;
  target: Target;
  signal: AbortSignal;
  /** Returns whether the instance no longer runs. */
  isEnding: () => boolean;
  /** The turn of this log among the logs of the viewer. */
  turn: MergeMember;
  place: Place;
  /** Time of the newest line shown, in the form that the viewer got. */
  shownAt: string | null;
  /**
   * True if the read did not tell where the log ended: it failed, or a 0.1.0 agent had no lines.
   */
  isEndUnknown: boolean;
  /** The last reason why the log cannot be read that was sent to the viewer. */
  toldProblem: string;
  /** Number of failed reads in a row. */
  failedReads: number;
  /** Monotonic time of the last read of missing lines. */
  filledAt: number;
};

/** Interval at which a source checks whether its node can be read. */
export const LOOK_MS = 2_000;
/**
 * After this silence the reader counts as dead: an agent sends something at least every 5 s while
 * it reads a log.
 */
const SILENT_MS = 15_000;
/**
 * Margin in ms: an agent counts the age of a request from the moment at which it receives the
 * request. A read begins earlier by this margin, and this file drops the lines from before the
 * request.
 */
const LATE_MS = 10_000;
const LINES_AT_ONCE = 500;
/** Minimum time between two reads of missing lines for one viewer. */
const FILL_EVERY_MS = 5_000;
/**
 * Limits in bytes of the memory for one viewer alone: the first lines of a deployment, and the
 * lines that are being sent.
 */
const FIRST_BYTES = 512 * 1024;
const PAGE_BYTES = 64 * 1024;

export const createSource = (
  viewer: Viewer,
  target: Target,
  signal: AbortSignal,
  isEnding: () => boolean,
): Source => ({
  viewer,
  target,
  signal,
  isEnding,
  turn: viewer.merge.join(),
  place: { last: viewer.cursors.get(target.key) ?? null, pos: null },
  shownAt: null,
  isEndUnknown: false,
  toldProblem: '',
  failedReads: 0,
  filledAt: -Infinity,
});

/** Sends the log until its instance has ended. */
export async function runSource(source: Source): Promise<void> {
  try {
    await sendUntilEnd(source);
  } finally {
    source.turn.leave();
  }
}

async function sendUntilEnd(source: Source): Promise<void> {
  const { viewer, target, signal } = source;
  for (;;) {
    const { node, problem } = await readableNode(viewer.deps, target.node_id);
    if (problem !== null) await tell(source, node?.hostname ?? null, problem);
    else if ((await sendLog(source, node)) && source.isEnding()) return;
    await sleep(LOOK_MS, undefined, { signal });
  }
}

/** Sends the log. Returns whether it was followed to its end. */
async function sendLog(source: Source, node: NodeRecord): Promise<boolean> {
  const { viewer, target } = source;
  const since = viewer.deps.now();
  if (!(await sendHistory(source, node)) && source.failedReads === 1) return false;
  const begin = { after: source.place.last?.at ?? null, since };
  const held = await viewer.deps.readers
    .follow({ ...target, node_id: node.id }, begin)
    .catch((error: unknown) => tell(source, node.hostname, refusalOf(error)));
  if (held === undefined) return false;
  try {
    if (source.isEndUnknown) source.place.pos = held.channel.tail;
    await sendNew(source, node, held.channel);
    return true;
  } finally {
    held.release();
  }
}

/** Returns the reason if too many logs are being read. Throws any other error. */
function refusalOf(error: unknown): string {
  if (!(error instanceof DomainError) || error.code !== 'too_many_requests') throw error;
  return error.message;
}

/**
 * Sends the lines of the engine's log after the place, or the lines that the request asks for.
 * Returns whether the log could be read.
 */
async function sendHistory(source: Source, node: NodeRecord): Promise<boolean> {
  const { viewer, target, signal } = source;
  const { last } = source.place;
  const request = {
    deployment_id: target.deployment_id,
    instance: target.instance,
    node_id: node.id,
    until: null,
    stream: null,
    bytes: Math.floor(FIRST_BYTES / Math.max(1, Math.min(4, viewer.merge.size()))),
    ...historyRange(source),
  };
  const read = await viewer.reads(() => viewer.deps.readers.read(request, signal), signal);
  const lines = read.lines.filter(
    (line) => isNew(line.cursor, last, read) && isInRange(source, line, read.offset),
  );
  await viewer.recheck();
  const [first] = lines;
  await passLines(source, lines, {
    offset: read.offset,
    isGapBefore: first !== undefined && isGapBefore(source, first, read),
    isFirst: viewer.firstTargets.has(target.key),
  });
  return endHistory(source, node, read);
}

type Passing = {
  offset: number;
  /** True if lines can be missing before the first line. */
  isGapBefore: boolean;
  isFirst: boolean;
};

/** Passes the lines to the merge, which sends the lines of all logs of the viewer by time. */
function passLines(
  source: Source,
  lines: readonly ChannelLine[],
  { offset, isGapBefore: isLost, isFirst }: Passing,
): Promise<void> {
  const { viewer, signal, turn } = source;
  const sendPart = async (from: number, to: number): Promise<void> => {
    const [first] = lines.slice(from, to);
    if (isLost && from === 0 && first !== undefined)
      await send(viewer, [lostEvent(source, first, offset)]);
    for (let i = from; i < to; i += LINES_AT_ONCE) {
      signal.throwIfAborted();
      await sendLines(source, lines.slice(i, Math.min(to, i + LINES_AT_ONCE)), offset);
    }
  };
  return turn.pass({
    times: lines.map(({ at }) => Date.parse(correctedTime(at, offset))),
    async send(from, to) {
      await checkRights(viewer);
      signal.throwIfAborted();
      await inTime(viewer, () => sendPart(from, to));
    },
    skip(to) {
      const last = lines[to - 1];
      if (last !== undefined) moveTo(source, last.cursor);
    },
    isFirst,
  });
}

/** Moves the place to the end of the lines that were read. */
async function endHistory(source: Source, node: NodeRecord, read: ReadResult): Promise<boolean> {
  const { last } = source.place;
  source.isEndUnknown = last === null && (read.problem !== null || read.last === undefined);
  if (read.problem !== null) {
    source.failedReads += 1;
    await tell(source, node.hostname, read.problem);
    return false;
  }
  source.failedReads = 0;
  source.viewer.firstTargets.delete(source.target.key);
  const newest = read.last ?? null;
  if (newest !== null && isNew(newest, last, read)) moveTo(source, newest);
  return true;
}

function historyRange({ viewer, target, place }: Source) {
  if (place.last !== null) return { tail: MAX_TAIL, since: null, after: place.last.at };
  // Show a deployment that starts while the stream is open from its first line.
  if (!viewer.firstTargets.has(target.key)) return { tail: MAX_TAIL, since: null, after: null };
  const { query, beganAt } = viewer;
  // With `tail` 0, the client wants all lines since the request, whatever their number.
  if (query.tail === 0) return { tail: MAX_TAIL, since: beganAt - LATE_MS, after: null };
  return { tail: query.tail ?? DEFAULT_TAIL, since: rangeOf(query).since, after: null };
}

const isNew = (
  cursor: LogCursor,
  last: LogCursor | null,
  { isReset }: Pick<ReadResult, 'isReset'>,
): boolean => isReset || !covers(last, cursor);

function moveTo({ viewer, target, place }: Source, cursor: LogCursor): void {
  place.last = cursor;
  place.pos = null;
  viewer.cursors.set(target.key, cursor);
}

/**
 * Returns false for a line from before the request if the viewer wants only newer lines (`tail` 0).
 */
const isInRange = ({ viewer, place }: Source, { at }: ChannelLine, offset: number): boolean =>
  place.last !== null ||
  viewer.query.tail !== 0 ||
  Date.parse(correctedTime(at, offset)) >= viewer.beganAt;

/** Returns whether lines can be missing between the place and the first line of a read. */
function isGapBefore({ viewer, place }: Source, first: ChannelLine, read: ReadResult): boolean {
  if (place.last === null) {
    // With `tail`, the client wants a number of lines, so older ones are not missing.
    if (viewer.query.tail !== 0) return read.isOverBytes;
    // With `tail` 0, lines are missing only if the read was cut and all its lines are newer than
    // the request.
    return (read.isOverBytes || read.isCut) && read.lines[0] === first;
  }
  return read.isReset || (read.isCut && read.lines[0] === first);
}

/** Sends the new lines until the agent says that it sent the last one. */
async function sendNew(source: Source, node: NodeRecord, channel: Channel): Promise<void> {
  const { signal } = source;
  for (;;) {
    const { lines, pos, before } = stretchAfter(channel, source.place, LINES_AT_ONCE, PAGE_BYTES);
    if (before === 'hole' && canFill(source)) {
      source.filledAt = performance.now();
      source.place.pos = null;
      // If too many logs are being read, the missing lines stay missing.
      await sendHistory(source, node).catch(refusalOf);
      continue;
    }
    const [first] = lines;
    if (first !== undefined) {
      await passLines(source, lines, {
        offset: channel.offset,
        isGapBefore: before !== 'nothing',
        isFirst: false,
      });
      source.place.pos = pos;
      // Pause between two parts, so that the process can handle other requests.
      await setImmediate();
      continue;
    }
    source.turn.rest();
    if (channel.hasEnded) return;
    await tellChannelProblem(source, node, channel);
    await waitFor(
      channel,
      () => channel.hasEnded || hasMore(channel, source.place),
      LOOK_MS,
      signal,
    );
    signal.throwIfAborted();
  }
}

const canFill = ({ filledAt }: Source): boolean => performance.now() - filledAt > FILL_EVERY_MS;
const hasMore = (channel: Channel, place: Place): boolean =>
  stretchAfter(channel, place, 1).lines.length > 0;

async function sendLines(
  source: Source,
  lines: readonly ChannelLine[],
  offset: number,
): Promise<void> {
  const { viewer, target } = source;
  const events: SseEvent[] = [];
  for (const line of lines) {
    moveTo(source, line.cursor);
    if (viewer.query.stream !== undefined && line.stream !== viewer.query.stream) continue;
    const data = lineView(target, line, offset);
    source.shownAt = data.at;
    events.push({ event: 'line', data, id: resumeId(viewer.cursors) });
  }
  if (events.length > 0) source.toldProblem = '';
  await send(viewer, events);
}

function lostEvent({ target, shownAt }: Source, next: ChannelLine, offset: number): SseEvent {
  const data: LostLines = {
    deployment_id: target.deployment_id,
    process: target.process,
    instance: target.number,
    count: 'some',
    from: shownAt,
    to: correctedTime(next.at, offset),
  };
  return { event: 'lost', data };
}

async function tellChannelProblem(
  source: Source,
  node: NodeRecord,
  channel: Channel,
): Promise<void> {
  if (channel.problem !== null && !source.isEnding())
    await tell(source, node.hostname, channel.problem);
  if (performance.now() - channel.heardAt <= SILENT_MS) return;
  const seconds = Math.floor(SILENT_MS / 1000);
  await tell(source, node.hostname, `node ${node.hostname} has sent nothing for ${seconds} s`);
}

/** Tells the viewer why the log cannot be read, once for each reason. */
async function tell(source: Source, node: string | null, message: string): Promise<void> {
  const { viewer, target, turn } = source;
  turn.rest();
  if (source.toldProblem === message) return;
  source.toldProblem = message;
  await sendGone(viewer, {
    deployment_id: target.deployment_id,
    node,
    message: `${nameBefore(target, viewer.merge.size())}${message}`,
  });
}
