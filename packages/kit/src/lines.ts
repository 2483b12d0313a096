/**
 * Splits the output of programs into lines for people. Builds, containers and tools share these
 * rules (docs/runtime.md "Output"):
 *
 * - A line ends with LF or CR LF. A last line without an end counts.
 * - A carriage return inside a line starts it again, as on a terminal, so a progress bar leaves its
 *   last state only.
 * - Bytes are UTF-8. A character can arrive in several pieces. Invalid bytes become U+FFFD.
 * - A line has at most MAX_LINE characters (UTF-16 units). The end of a longer one says how many
 *   more there were, and no character is cut in two.
 *
 * It keeps a bounded part of a line, and it reads each byte once.
 */

/** The limit of a line in characters, with the mark at the end of a line that was cut. */
export const MAX_LINE = 16_000;

const MARK = /… \(line cut: (\d+) more characters\)$/;
/** Room for the mark with any number. */
const MARK_ROOM = 50;
const markOf = (missing: number): string => `… (line cut: ${missing} more characters)`;

/**
 * Returns where a line was cut; null if it is whole. The text before can end with a part of a
 * secret.
 */
export function cutAt(text: string): number | null {
  return text.endsWith(')') ? (MARK.exec(text)?.index ?? null) : null;
}

/**
 * Cuts a line to `most` characters. `missing`: characters that are already gone. A line that was
 * cut before keeps a correct mark.
 */
export function cutLine(text: string, most = MAX_LINE, missing = 0): string {
  if (text.length <= most && missing === 0) return text;
  const before = text.endsWith(')') ? MARK.exec(text) : null;
  const rest = before === null ? text : text.slice(0, before.index);
  const kept = wellCut(rest, Math.max(0, most - MARK_ROOM));
  return kept + markOf(rest.length - kept.length + missing + Number(before?.[1] ?? 0));
}

/** Returns at most `most` characters, without half a surrogate pair at the end. */
function wellCut(text: string, most: number): string {
  if (text.length <= most) return text;
  const last = text.charCodeAt(most - 1);
  return text.slice(0, last >= 0xd800 && last <= 0xdbff ? most - 1 : most);
}

/** Returns the last state of a line that carriage returns rewrote. */
export function lastState(line: string): string {
  const text = line.replace(/\r+$/, '');
  return text.slice(text.lastIndexOf('\r') + 1);
}

/** A line before it is decoded, so that a line which nobody wants costs nothing. */
export type OutputLine = {
  /** Length in bytes, also of the part that was not kept. */
  readonly bytes: number;
  /** Decodes the kept part. `missing`: characters that were not kept. */
  read(): { text: string; missing: number };
};
export type LinesOptions = {
  onLine: (line: OutputLine) => void;
  /** Characters of a line that are kept. Default MAX_LINE. */
  most?: number;
  /**
   * `rewrite`: a carriage return starts the line again. `end`: it ends the line, so that each state
   * of a progress bar arrives. `keep`: it stays in the line, for callers that read a format of
   * their own.
   */
  carriageReturns?: CarriageReturns;
};
export type CarriageReturns = 'rewrite' | 'end' | 'keep';
export type Lines = {
  /** The bytes of `chunk` can change after the call. */
  add(chunk: Buffer): void;
  /** Ends the stream, and with it a last line without an end. */
  end(): void;
};

const LF = 10;
const CR = 13;
/** A UTF-16 unit has at most 3 bytes in UTF-8. */
const BYTES_PER_CHARACTER = 3;

export function createLines({
  onLine,
  most = MAX_LINE,
  carriageReturns = 'rewrite',
}: LinesOptions): Lines {
  const limit = most * BYTES_PER_CHARACTER + BYTES_PER_CHARACTER;
  let parts: Buffer[] = [];
  let kept = 0;
  let bytes = 0;
  let missing = 0;
  /** A carriage return at the end of what was read: what follows decides what it means. */
  let returned = false;

  function begin(): void {
    parts = [];
    kept = 0;
    bytes = 0;
    missing = 0;
    returned = false;
  }
  function append(part: Buffer): void {
    if (part.length === 0) return;
    bytes += part.length;
    if (kept < limit) {
      // A copy: the chunk would stay in memory as long as its part.
      const taken = Buffer.from(part.subarray(0, limit - kept));
      parts.push(taken);
      kept += taken.length;
      if (taken.length === part.length) return;
      missing += charactersIn(part, taken.length);
    } else missing += charactersIn(part, 0);
    // Many small pieces would cost more than their bytes.
    if (parts.length > 256) parts = [Buffer.concat(parts)];
  }
  function flush(): void {
    const [whole, gone, size] = [parts, missing, bytes];
    begin();
    onLine({
      bytes: size,
      read: () =>
        decode(
          whole.length === 1 && whole[0] !== undefined ? whole[0] : Buffer.concat(whole),
          gone,
        ),
    });
  }
  function content(part: Buffer): void {
    if (part.length === 0) return;
    if (returned) {
      if (carriageReturns === 'rewrite') begin();
      else if (carriageReturns === 'end') flush();
      else append(Buffer.of(CR));
      returned = false;
    }
    append(part);
  }

  return {
    add(chunk) {
      let from = 0;
      let cr = chunk.indexOf(CR);
      for (;;) {
        const lf = chunk.indexOf(LF, from);
        const to = lf === -1 ? chunk.length : lf;
        for (; cr !== -1 && cr < to; cr = chunk.indexOf(CR, cr + 1)) {
          content(chunk.subarray(from, cr));
          // A second carriage return in a row.
          if (returned && carriageReturns === 'end') flush();
          if (returned && carriageReturns === 'keep') append(Buffer.of(CR));
          returned = true;
          from = cr + 1;
        }
        content(chunk.subarray(from, to));
        if (lf === -1) return;
        flush();
        from = lf + 1;
      }
    },
    end() {
      if (bytes > 0) flush();
      else begin();
    },
  };
}

/**
 * Counts the characters of a part in UTF-16 units: each first byte, and twice for characters of 4
 * bytes. An estimate for invalid bytes.
 */
function charactersIn(part: Buffer, from: number): number {
  let count = 0;
  for (let i = from; i < part.length; i += 1) {
    const byte = part[i] ?? 0;
    if ((byte & 0xc0) !== 0x80) count += byte >= 0xf0 && byte <= 0xf4 ? 2 : 1;
  }
  return count;
}

/** Returns the length in bytes of the character in UTF-8 that begins with this byte. */
function charBytes(first: number): 1 | 2 | 3 | 4 {
  if (first > 0xf4 || first < 0xc0) return 1;
  if (first >= 0xf0) return 4;
  return first >= 0xe0 ? 3 : 2;
}

function decode(kept: Buffer, missing: number): { text: string; missing: number } {
  if (missing === 0) return { text: kept.toString('utf8'), missing };
  // The part ends at a limit in bytes: leave out an unfinished character, which counts with its
  // first byte.
  let end = kept.length;
  while (end > 0 && kept.length - end < 3 && ((kept[end - 1] ?? 0) & 0xc0) === 0x80) end -= 1;
  const first = kept[end - 1] ?? 0;
  const size = charBytes(first);
  const isWhole = size === 1 || kept.length - end + 1 >= size;
  if (isWhole) return { text: kept.toString('utf8'), missing };
  return { text: kept.toString('utf8', 0, end - 1), missing: missing + (size === 4 ? 2 : 1) };
}
