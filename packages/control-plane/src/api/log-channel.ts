/**
 * The newest lines of one log that an agent reads. All viewers of the log share them: a viewer is a
 * position in this buffer, so its cost does not depend on how far it is behind, and a viewer that
 * falls out of the buffer gets the number of lines that it missed.
 *
 * Batches may arrive twice (a repeated request), late (from another control plane) or not at all.
 * `first` of a batch orders them: a gap waits a second for its batch and is then counted as lost.
 */
import type { BatchLine, LogBatch, RuntimeStream } from '@berth/wire/runtime';

/**
 * `pos` numbers the lines of this channel, including the lost ones. `begins`: the first line of its
 * batch. An agent numbers the lines that it drops after the lines of their batch, so all lines that
 * the container printed before a line that begins have a smaller number.
 */
export type ChannelLine = BatchLine & { pos: number; begins: boolean };
export type ChannelItem =
  | { lost: 0; line: ChannelLine }
  | { lost: number; line: ChannelLine | null };
export type ChannelBounds = { lines: number; bytes: number };

export type Channel = {
  deliver(batch: Omit<LogBatch, 'node_id'>): void;
  /**
   * Returns up to `max` lines after the position, each preceded by the number of lines that are
   * missing before it.
   */
  after(pos: number, max: number, maxBytes?: number): ChannelItem[];
  /** Returns the lines up to the position that are kept. */
  until(pos: number): ChannelLine[];
  /** Returns the first kept line after the position that begins a batch. */
  boundary(pos: number): ChannelLine | null;
  /** Number of lines that were dropped because of the bounds. */
  dropped(): number;
  /** Number of lines that no batch had. */
  missing(): number;
  /** Position of the newest line. */
  end(): number;
  /** The agent has said that the last line was sent. */
  ended(): boolean;
  /** Why the agent cannot read the log; null if it can. */
  problem(): string | null;
  /** Older lines in the range of a `read` that were not sent. */
  leftOut(): number;
  /**
   * Whether the channel has the numbers of the first reader from its beginning on; null before its
   * first lines. If not, lines that came before are missing without a number.
   */
  isWhole(): boolean | null;
  /** Monotonic time of the last batch; null before the first. */
  heardAt(): number | null;
  /** Correction of the times of the node, in ms; 0 if its clock is right. */
  offset(): number;
  /** The engine's time of the newest line. */
  position(): string | null;
  on(listener: () => void): () => void;
  close(): void;
};

/** A batch that comes by way of another control plane may be overtaken by its successor. */
const WAIT_FOR_GAP_MS = 1_000;
const MOST_EARLY = 4;
const MOST_EPOCHS = 4;
/** A new reader of the agent begins a little before the last line of the one before. */
const OVERLAP_MS = 5_000;
/** Less may be the time that the batch took. */
const CLOCK_TOLERANCE_MS = 5_000;
/** Bytes of a line in memory, besides its text. */
const LINE_BYTES = 120;

type Batch = Omit<LogBatch, 'node_id'>;

export function createChannel(
  bounds: ChannelBounds,
  now: () => number,
  monotonic: () => number = () => performance.now(),
): Channel {
  let lines: ChannelLine[] = [];
  /** Lines before this index were dropped. */
  let head = 0;
  let bytes = 0;
  let tail = 0;
  let dropped = 0;
  let missing = 0;
  let epoch: string | null = null;
  const earlier: string[] = [];
  /** The number that the next batch of this epoch begins with; null: any. */
  let expected: number | null = null;
  let isWhole: boolean | null = null;
  let overlapUntil = -Infinity;
  const newest: Record<RuntimeStream, string> = { stdout: '', stderr: '' };
  const early = new Map<number, Batch>();
  let timer: NodeJS.Timeout | undefined;
  let ended = false;
  let problem: string | null = null;
  let leftOut = 0;
  let heardAt: number | null = null;
  let offset = 0;
  const listeners = new Set<() => void>();

  function begin(batch: Batch): void {
    if (epoch !== null) {
      earlier.push(epoch);
      if (earlier.length > MOST_EPOCHS) earlier.shift();
      overlapUntil = monotonic() + OVERLAP_MS;
    }
    // A reader that was running when this channel began: its earlier lines are not missing here.
    // But the first batch that arrives may have overtaken another one by way of the other control
    // plane, so it waits.
    expected = epoch === null && batch.first > 0 ? null : 0;
    epoch = batch.epoch;
    early.clear();
    ended = false;
    const off = now() - batch.now;
    offset = Math.abs(off) > CLOCK_TOLERANCE_MS ? Math.round(off / 1000) * 1000 : 0;
  }

  function append(batch: Batch): void {
    const from = Math.max(0, (expected ?? batch.first) - batch.first);
    const gap = Math.max(0, batch.first - (expected ?? batch.first));
    isWhole ??= expected === 0 || batch.first === 0;
    tail += gap;
    missing += gap;
    for (const [i, line] of batch.lines.entries()) {
      if (i < from || (monotonic() < overlapUntil && line.at <= newest[line.stream])) continue;
      newest[line.stream] = line.at;
      tail += 1;
      lines.push({ ...line, pos: tail, begins: i === 0 });
      bytes += line.text.length + LINE_BYTES;
    }
    expected = Math.max(expected ?? 0, batch.first + batch.lines.length);
    if (batch.end === true) ended = true;
    problem = batch.problem ?? null;
    leftOut = batch.left_out ?? leftOut;
    trim();
  }
  function trim(): void {
    while (
      lines.length - head > 1 &&
      (lines.length - head > bounds.lines || bytes > bounds.bytes)
    ) {
      bytes -= (lines[head]?.text.length ?? 0) + LINE_BYTES;
      head += 1;
      dropped += 1;
    }
    if (head < 1_000 || head * 2 < lines.length) return;
    lines = lines.slice(head);
    head = 0;
  }
  function appendEarly(gapIsLost: boolean): void {
    for (;;) {
      const firsts = [...early.keys()].sort((a, b) => a - b);
      const [first] = firsts;
      if (first === undefined || (!gapIsLost && first > (expected ?? 0))) break;
      const batch = early.get(first);
      early.delete(first);
      if (batch !== undefined) append(batch);
    }
    if (early.size > 0) return;
    clearTimeout(timer);
    timer = undefined;
  }
  function indexAfter(pos: number): number {
    let [low, high] = [head, lines.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((lines[middle]?.pos ?? 0) <= pos) low = middle + 1;
      else high = middle;
    }
    return low;
  }
  const changed = (): void => {
    for (const listener of [...listeners]) listener();
  };

  return {
    deliver(batch) {
      if (earlier.includes(batch.epoch)) return;
      heardAt = monotonic();
      if (batch.epoch !== epoch) begin(batch);
      early.set(batch.first, batch);
      appendEarly(early.size > MOST_EARLY);
      if (early.size > 0)
        timer ??= setTimeout(() => {
          timer = undefined;
          appendEarly(true);
          changed();
        }, WAIT_FOR_GAP_MS);
      changed();
    },
    after(pos, max, maxBytes = Infinity) {
      const low = indexAfter(pos);
      let found = lines.slice(low, low + max);
      let size = 0;
      const fits = found.findIndex((line) => (size += line.text.length + LINE_BYTES) > maxBytes);
      if (fits !== -1) found = found.slice(0, Math.max(1, fits));
      let before = pos;
      const items: ChannelItem[] = found.map((line) => {
        const lost = line.pos - before - 1;
        before = line.pos;
        return { lost, line };
      });
      if (low + found.length === lines.length && tail > before)
        items.push({ lost: tail - before, line: null });
      return items;
    },
    until: (pos) => lines.slice(head, indexAfter(pos)),
    boundary(pos) {
      for (let i = indexAfter(pos); i < lines.length; i += 1)
        if (lines[i]?.begins === true) return lines[i] ?? null;
      return null;
    },
    dropped: () => dropped,
    missing: () => missing,
    end: () => tail,
    ended: () => ended,
    problem: () => problem,
    leftOut: () => leftOut,
    isWhole: () => isWhole,
    heardAt: () => heardAt,
    offset: () => offset,
    position: () => (newest.stdout > newest.stderr ? newest.stdout : newest.stderr) || null,
    on(listener) {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
    close() {
      clearTimeout(timer);
      ended = true;
      changed();
    },
  };
}
