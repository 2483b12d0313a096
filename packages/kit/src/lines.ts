/**
 * Splits the output of programs into lines for people. Builds, containers and tools share these
 * rules (docs/runtime.md "Output"):
 *
 * - A line ends with LF or CR LF. A last line without a line end counts too.
 * - A carriage return inside a line restarts the line, as on a terminal, so only the last state of
 *   a progress bar remains.
 * - Bytes are UTF-8. A character can arrive in several pieces. Invalid bytes become U+FFFD.
 * - A line has at most MAX_LINE characters (UTF-16 units). A longer line ends with a mark that
 *   counts the missing characters, and no character is split.
 *
 * Only a bounded part of each line is kept in memory, and each byte is read once.
 */

/** Maximum number of characters in a line, including the mark at the end of a line that was cut. */
export const MAX_LINE = 16_000;

const MARK = /… \(line cut: (\d+) more characters\)$/;
/** Maximum length of the mark, with any number. */
const MARK_ROOM = 50;
const markOf = (missing: number): string => `… (line cut: ${missing} more characters)`;

/**
 * Returns the position at which a line was cut, or null for a whole line. The text before that
 * position can end with a part of a secret.
 */
export function cutAt(text: string): number | null {
  return text.endsWith(')') ? (MARK.exec(text)?.index ?? null) : null;
}

/**
 * Cuts a line to `most` characters. `missing` is the number of characters that were already
 * removed. If the line was cut before, its mark then counts all missing characters.
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

/** A line that is decoded only on request, so that an unused line costs nothing. */
export type OutputLine = {
  /** Length in bytes, also of the part that was not kept. */
  readonly bytes: number;
  /** Decodes the kept part. `missing` is the number of characters that were not kept. */
  read(): { text: string; missing: number };
};
export type LinesOptions = {
  onLine: (line: OutputLine) => void;
  /** Maximum number of characters that are kept of a line. Default MAX_LINE. */
  most?: number;
  /**
   * `rewrite`: a carriage return restarts the line. `end`: it ends the line, so that each state of
   * a progress bar arrives. `keep`: it stays in the line, for callers that parse their own format.
   */
  carriageReturns?: CarriageReturns;
};
export type CarriageReturns = 'rewrite' | 'end' | 'keep';
export type Lines = {
  /** Reads `chunk` before it returns, so the caller can reuse the buffer. */
  add(chunk: Buffer): void;
  /** Ends the stream. Reports a last line without a line end. */
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
  /** True if the last character was a carriage return. The next character decides what it means. */
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
      // Copy the part, because a view would keep the whole chunk in memory.
      const taken = Buffer.from(part.subarray(0, limit - kept));
      parts.push(taken);
      kept += taken.length;
      if (taken.length === part.length) return;
      missing += charactersIn(part, taken.length);
    } else missing += charactersIn(part, 0);
    // Join the parts, because many small buffers need more memory than their bytes.
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
          // This is the second carriage return in a row.
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
 * Counts the characters of a part in UTF-16 units: one per first byte, and two for a character of 4
 * bytes. The result is an estimate if the bytes are not valid UTF-8.
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
  // The part ends at a limit in bytes, so leave out an incomplete last character. `missing` does
  // not include it yet, because its first byte is in the part.
  let end = kept.length;
  while (end > 0 && kept.length - end < 3 && ((kept[end - 1] ?? 0) & 0xc0) === 0x80) end -= 1;
  const first = kept[end - 1] ?? 0;
  const size = charBytes(first);
  const isWhole = size === 1 || kept.length - end + 1 >= size;
  if (isWhole) return { text: kept.toString('utf8'), missing };
  return { text: kept.toString('utf8', 0, end - 1), missing: missing + (size === 4 ? 2 : 1) };
}
