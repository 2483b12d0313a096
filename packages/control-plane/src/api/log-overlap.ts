/**
 * A viewer first gets a read of older lines and then follows the channel of new lines. The two
 * overlap. This tells which lines of the channel the read had, and how many of its missing numbers
 * are lines that the viewer never got.
 *
 * Each line that was printed up to the newest line of the read is settled: it was shown, or it was
 * counted as lost with the read, or it is older than what the viewer asked for. So missing numbers
 * up to there are not counted. A gap that may go beyond does not say when its lines were printed.
 * Another read counts all lines between the newest of the first read and a numbered line after the
 * gap. Lines of them that the viewer does not get are lost.
 */
import type { BatchLine } from '@berth/wire/runtime';
import type { Channel, ChannelItem, ChannelLine } from './log-channel.ts';

type Line = Pick<BatchLine, 'at' | 'stream' | 'text'>;
type Times = Record<Line['stream'], string>;
export type Overlap = {
  /** Whether the read had this line. Call it once for each line, in their order. */
  wasShown(line: Line): boolean;
  /** The newest line of each stream that the viewer has; '': none. */
  newest: Times;
};

/**
 * `read`: all lines of the read, by time. `before`: the lines of the channel that came before the
 * viewer's position, so far as they are kept. `floor`: the time of each stream up to which the
 * viewer has all lines from an earlier connection.
 */
export function createOverlap(
  read: readonly Line[],
  before: readonly Line[],
  floor: Times,
): Overlap {
  const newest = { ...floor };
  for (const { stream, at } of read) if (at > newest[stream]) newest[stream] = at;
  /**
   * Two lines can have the same nanosecond: at the newest time, the texts that the read had decide.
   */
  const atNewest = new Map<string, number>();
  const keyOf = ({ stream, text }: Line): string => `${stream} ${text}`;
  for (const line of read)
    if (line.at === newest[line.stream])
      atNewest.set(keyOf(line), (atNewest.get(keyOf(line)) ?? 0) + 1);

  function wasShown(line: Line): boolean {
    if (line.at !== newest[line.stream]) return line.at < newest[line.stream];
    // The read had none of this time: the viewer has it from an earlier connection.
    if (line.at === floor[line.stream]) return true;
    const left = atNewest.get(keyOf(line)) ?? 0;
    if (left > 0) atNewest.set(keyOf(line), left - 1);
    return left > 0;
  }
  for (const line of before) wasShown(line);
  return { wasShown, newest };
}

/**
 * Reads the lines after the newest ones that the viewer has. Returns the newest of them, and the
 * number of all; null: it cannot.
 */
export type Recount = (after: Times) => Promise<{ lines: readonly Line[]; total: number } | null>;
export type Gaps = {
  /** Number of the items that can be counted now. 0: call `settle` first. */
  ready(items: readonly ChannelItem[]): number;
  /**
   * Returns how many lines the viewer has lost before this item. Call it once for each item, in
   * their order.
   */
  lost(item: ChannelItem): number;
  /** Notes a line of the channel that is sent. */
  sent(): void;
  /**
   * Counts the lines of the gap after the position. `wait` waits a little for a condition of the
   * channel.
   */
  settle(
    channel: Channel,
    pos: number,
    recount: Recount,
    wait: (condition: () => boolean) => Promise<unknown>,
  ): Promise<void>;
};

/**
 * A recount has no line with the channel in common if the container prints more lines than a read
 * has meanwhile.
 */
const MOST_RECOUNTS = 3;

/** Counts the lost lines of one viewer after a read. */
export function createGaps(newest: Times, isOver: () => boolean): Gaps {
  const end = newest.stdout > newest.stderr ? newest.stdout : newest.stderr;
  /** The gap that the end of the read is in may still come. */
  let isOpen = end !== '';
  let sentLines = 0;
  /** So many missing numbers up to this position are lines that are settled. */
  let credit = { left: 0, until: 0 };
  const isOld = (line: Line | null): boolean => line !== null && line.at <= end;

  /**
   * Notes how many of the missing numbers between the position and `to` are settled, if so many
   * lines were printed after the read.
   */
  function note(channel: Channel, pos: number, to: number, printed: number): void {
    const kept = channel.until(to).filter((line) => line.pos > pos);
    const lost = printed - sentLines - kept.filter((line) => line.at > newest[line.stream]).length;
    credit = { left: Math.max(0, to - pos - kept.length - Math.max(0, lost)), until: to };
    // No line was printed after the read yet: a later gap may go beyond its end, too.
    isOpen = printed === 0;
  }

  return {
    ready(items) {
      if (isOver()) isOpen = false;
      for (const [i, { lost, line }] of items.entries()) {
        if (!isOpen) break;
        if (isOld(line)) continue;
        const isSettled = lost <= credit.left && (line === null || line.pos - 1 <= credit.until);
        if (lost > 0 && !isSettled) return i;
        if (line?.begins === true) isOpen = false;
      }
      return items.length;
    },
    lost({ lost, line }) {
      if (lost === 0) return 0;
      if (isOld(line) && !isOver()) return 0;
      if (line !== null && line.pos - 1 - lost >= credit.until) credit.left = 0;
      const settled = Math.min(lost, credit.left);
      credit.left -= settled;
      return lost - settled;
    },
    sent() {
      if (isOpen) sentLines += 1;
    },
    async settle(channel, pos, recount, wait) {
      const hasNext = (): boolean => channel.boundary(pos) !== null;
      for (let i = 0; i < MOST_RECOUNTS; i += 1) {
        if (!hasNext()) await wait(hasNext);
        const until = channel.end();
        const isQuiet = (): boolean => channel.end() === until;
        const wasQuiet = !hasNext();
        const found = await recount(newest);
        if (found === null) break;
        if (wasQuiet && isQuiet()) await wait(() => !isQuiet());
        if (wasQuiet && isQuiet()) return note(channel, pos, until, found.total);
        // Ends at a line that both have. While the container floods, the channel gets it later.
        const common = commonIn(channel, pos, found.lines);
        const last = found.lines.at(-1)?.at ?? '';
        if (common() === null)
          await wait(() => common() !== null || (channel.position() ?? '') >= last);
        const at = common();
        if (at !== null)
          return note(channel, pos, at.line.pos - 1, found.total - found.lines.length + at.index);
      }
      // Unknown: rather too many lines are reported than too few.
      isOpen = false;
    },
  };
}

/** Looks for the first line that begins a batch after the position and is among the lines. */
function commonIn(
  channel: Channel,
  pos: number,
  lines: readonly Line[],
): () => { line: ChannelLine; index: number } | null {
  const keyOf = ({ at, stream }: Line): string => `${stream} ${at}`;
  const indexes = new Map([...lines.entries()].toReversed().map(([i, line]) => [keyOf(line), i]));
  return () => {
    for (let line = channel.boundary(pos); line !== null; line = channel.boundary(line.pos)) {
      const index = indexes.get(keyOf(line));
      if (index !== undefined) return { line, index };
    }
    return null;
  };
}
