/**
 * Splits the output of `docker logs --timestamps` into lines, by the rules of all output
 * (kit/lines.ts). A line that is not wanted is only counted: a container that prints 100 MB/s costs
 * no memory.
 *
 * The engine stores a long line in pieces of 16,384 bytes and prints its time before each of them:
 * `TIME piece TIME piece LF`. The pieces are joined here: a time counts as the engine's only where
 * a piece ends, and only if it equals the time of the first piece. The log driver json-file stores
 * a character that a piece cuts in two as up to 4 U+FFFD, half of them in each piece; one U+FFFD
 * remains.
 */
import { createLines, cutLine, MAX_LINE, type OutputLine } from '@berth/kit/lines';
import type { RuntimeStream } from '@berth/wire/runtime';

export type RawLine = { at: string; stream: RuntimeStream; text: string };
export type LineReaderOptions = {
  /**
   * Asked once for each line, in the order of the engine, with its time and its size in bytes, of
   * at most MAX_BYTES. False: the line is left out.
   */
  mayTake: (bytes: number, at: string) => boolean;
  onLine: (line: RawLine) => void;
  /** A message of the docker command itself: it has no time. */
  onMessage: (text: string) => void;
};

/** Bytes of a line that count for the budgets: what is kept of it. */
const MAX_BYTES = 64 * 1024;
const LF = 10;
const SPACE = 32;
/** RFC 3339 with nanoseconds, as the engine writes it. */
const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)$/;
const LONGEST_TIME = 40;
/** Size of a piece in bytes, as the program printed it. */
export const PIECE = 16_384;
const REPLACEMENT = Buffer.from('\u{FFFD}');
const NONE = Buffer.alloc(0);

export function createLineReader({ mayTake, onLine, onMessage }: LineReaderOptions) {
  const streams = { stdout: createStream('stdout'), stderr: createStream('stderr') };

  function createStream(stream: RuntimeStream) {
    /** The time of the open line; '' for a message of the command; null: not read yet. */
    let at: string | null = null;
    let time = NONE;
    /** The beginning of a line until its time is known, or the end of what was read of a piece. */
    let open = NONE;
    /** U+FFFD at the end of the piece before. */
    let broken = 0;
    /** The line has no further pieces. */
    let isWhole = false;

    const lines = createLines({ onLine: take });
    function take(line: OutputLine): void {
      const from = at ?? '';
      if (from !== '' && !mayTake(Math.min(line.bytes + time.length, MAX_BYTES), from)) return;
      const { text, missing } = line.read();
      const shown = cutLine(text, MAX_LINE, missing);
      if (from === '') onMessage(shown);
      else onLine({ at: from, stream, text: shown });
    }
    function begin(): void {
      at = null;
      time = NONE;
      open = NONE;
      broken = 0;
      isWhole = false;
    }
    /**
     * Reads the time at the beginning of a line. Returns the rest, or null if more bytes are
     * needed.
     */
    function head(bytes: Buffer, isEnd: boolean): Buffer | null {
      const space = bytes.subarray(0, LONGEST_TIME).indexOf(SPACE);
      if (space === -1 && !isEnd && bytes.length < LONGEST_TIME) return null;
      const first = bytes
        .toString('latin1', 0, space === -1 ? Math.min(bytes.length, LONGEST_TIME) : space)
        .replace(/\r$/, '');
      if (!TIME.test(first)) {
        at = '';
        isWhole = true;
        return bytes;
      }
      at = first;
      time = Buffer.from(`${first} `);
      return bytes.subarray(Math.min(bytes.length, time.length));
    }
    /** Passes the bytes of a line. `isEnd`: the line ends after them. */
    function content(given: Buffer, isEnd: boolean): void {
      let bytes = open.length === 0 ? given : Buffer.concat([open, given]);
      open = NONE;
      if (at === null) {
        const rest = head(bytes, isEnd);
        if (rest === null) return void (open = Buffer.from(bytes));
        bytes = rest;
      }
      while (!isWhole && bytes.length >= PIECE) {
        const end = endOfPiece(bytes, time, isEnd);
        if (end === 'more') return void (open = Buffer.from(bytes));
        if (end === null) {
          isWhole = true;
          break;
        }
        const piece = bytes.subarray(0, end);
        const tail = replacementsAtEnd(piece);
        pass(piece.subarray(0, piece.length - tail * REPLACEMENT.length));
        broken = tail;
        bytes = bytes.subarray(end + time.length);
      }
      if (isWhole || isEnd) pass(bytes);
      else open = Buffer.from(bytes);
    }
    /** Joins the halves of a character that the engine broke. */
    function pass(bytes: Buffer): void {
      const front = broken === 0 ? 0 : replacementsAtStart(bytes);
      const isOne = front > 0 && broken + front <= 4;
      for (let i = 0; i < (isOne ? 1 : broken); i += 1) lines.add(REPLACEMENT);
      broken = 0;
      lines.add(isOne ? bytes.subarray(front * REPLACEMENT.length) : bytes);
    }
    function endLine(): void {
      lines.add(END);
      begin();
    }
    return {
      chunk(chunk: Buffer): void {
        let from = 0;
        for (let to = chunk.indexOf(LF); to !== -1; to = chunk.indexOf(LF, from)) {
          content(chunk.subarray(from, to), true);
          endLine();
          from = to + 1;
        }
        if (from < chunk.length) content(chunk.subarray(from), false);
      },
      end(): void {
        if (at === null && open.length === 0) return;
        content(NONE, true);
        endLine();
      },
    };
  }

  return {
    chunk: (chunk: Buffer, stream: RuntimeStream): void => streams[stream].chunk(chunk),
    /** Takes a last line without a line end. */
    end(): void {
      streams.stdout.end();
      streams.stderr.end();
    },
  };
}
const END = Buffer.of(LF);

/**
 * Returns where the piece at the beginning of `bytes` ends: the time follows there. Null: it is the
 * last piece. A U+FFFD in the log stands for 3 bytes of the program, or for one invalid byte, so
 * there may be several places to look at.
 */
function endOfPiece(bytes: Buffer, time: Buffer, isEnd: boolean): number | 'more' | null {
  let least = 0;
  let most = 0;
  let at = 0;
  for (;;) {
    const next = bytes.indexOf(REPLACEMENT, at);
    const plain = (next === -1 ? bytes.length : next) - at;
    // Within these bytes both counts grow alike: each of them may reach the size of a piece.
    for (let step = Math.max(0, PIECE - most); step <= plain && least + step <= PIECE; step += 1) {
      const place = at + step;
      const seen = bytes.subarray(place, place + time.length);
      if (!time.subarray(0, seen.length).equals(seen)) continue;
      if (seen.length === time.length) return place;
      if (!isEnd) return 'more';
    }
    if (least + plain > PIECE) return null;
    if (next === -1) return isEnd ? null : 'more';
    at = next + REPLACEMENT.length;
    least += plain + 1;
    most += plain + REPLACEMENT.length;
  }
}

function replacementsAtEnd(bytes: Buffer): number {
  let count = 0;
  while (count < 3 && isReplacement(bytes, bytes.length - (count + 1) * REPLACEMENT.length))
    count += 1;
  return count;
}
function replacementsAtStart(bytes: Buffer): number {
  let count = 0;
  while (count < 3 && isReplacement(bytes, count * REPLACEMENT.length)) count += 1;
  return count;
}
const isReplacement = (bytes: Buffer, at: number): boolean =>
  at >= 0 && bytes.subarray(at, at + REPLACEMENT.length).equals(REPLACEMENT);
