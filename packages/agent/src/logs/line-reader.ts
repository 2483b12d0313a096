/**
 * Splits the output of `docker logs --timestamps` into lines, by the rules for all output
 * (kit/lines.ts). Unwanted lines are only counted, so that a container that prints 100 MB/s costs
 * no memory.
 * The engine stores a long line in pieces of 16,384 bytes and prints its time before each piece:
 * `TIME piece TIME piece LF`. This reader joins the pieces: a time counts as the engine's only at
 * the end of a piece, and only if it equals the time of the first piece. If a piece ends inside a
 * character, the log driver json-file stores up to 4 U+FFFD, half of them in each piece; the reader
 * reduces them to one U+FFFD.
 */
import { createLines, cutLine, MAX_LINE, type OutputLine } from '@berth/kit/lines';
import type { RuntimeStream } from '@berth/wire/runtime';

export type RawLine = { at: string; stream: RuntimeStream; text: string };
export type LineReaderOptions = {
  /**
   * Called once for each line, in the engine's order, with its time and its size in bytes (at most
   * MAX_BYTES). Returns false to skip the line.
   */
  mayTake: (bytes: number, at: string, stream: RuntimeStream) => boolean;
  onLine: (line: RawLine) => void;
  /** Called with a message of the docker command itself, which has no time. */
  onMessage: (text: string) => void;
};

/** Maximum number of bytes of a line that count for the budgets: a longer line is cut. */
const MAX_BYTES = 64 * 1024;
const LF = 10;
const SPACE = 32;
/** Matches RFC 3339 with nanoseconds, as the engine writes it. */
const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)$/;
const LONGEST_TIME = 40;
/** Size of a piece in bytes, as printed by the program. */
export const PIECE = 16_384;
const REPLACEMENT = Buffer.from('\u{FFFD}');
const NONE = Buffer.alloc(0);

export function createLineReader({ mayTake, onLine, onMessage }: LineReaderOptions) {
  const streams = { stdout: createStream('stdout'), stderr: createStream('stderr') };

  function createStream(stream: RuntimeStream) {
    /** The time of the current line; '' for a message of the command; null if not read yet. */
    let at: string | null = null;
    let time = NONE;
    /** The beginning of a line until its time is known, or the unprocessed end of a piece. */
    let open = NONE;
    /** Number of U+FFFD at the end of the previous piece. */
    let broken = 0;
    /** True if the line has no further pieces. */
    let isWhole = false;

    const lines = createLines({ onLine: take });
    function take(line: OutputLine): void {
      const from = at ?? '';
      if (from !== '' && !mayTake(Math.min(line.bytes + time.length, MAX_BYTES), from, stream))
        return;
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
     * Reads the time at the beginning of a line. Returns the remaining bytes, or null if more are
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
    /** Passes on the bytes of a line. `isEnd`: the line ends after them. */
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
    /** Joins the two parts of a character that the engine split. */
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
    /** Passes on a last line without a line end. */
    end(): void {
      streams.stdout.end();
      streams.stderr.end();
    },
  };
}
const END = Buffer.of(LF);

/**
 * Returns the end of the piece at the beginning of `bytes`, where the time follows; null if it is
 * the last piece. A U+FFFD in the log stands for 3 bytes of the program or for one invalid byte, so
 * several positions are possible.
 */
function endOfPiece(bytes: Buffer, time: Buffer, isEnd: boolean): number | 'more' | null {
  let least = 0;
  let most = 0;
  let at = 0;
  for (;;) {
    const next = bytes.indexOf(REPLACEMENT, at);
    const plain = (next === -1 ? bytes.length : next) - at;
    // Without U+FFFD, both counts grow at the same rate, and each of them can reach the size of a
    // piece.
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
