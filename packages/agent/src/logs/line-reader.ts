/**
 * Splits the output of `docker logs --timestamps` into lines. It keeps at most MAX_LINE bytes of a line, and a line that is not wanted
 * is only counted: a container that prints 100 MB/s costs no memory.
 */
import type { RuntimeStream } from '@berth/wire/runtime';

export type RawLine = { at: string; stream: RuntimeStream; text: string };
export type LineReaderOptions = {
  /** Asked before each line, with its size in bytes. False: the line is only counted. */
  mayTake: (bytes: number) => boolean;
  onLine: (line: RawLine) => void;
  onDropped: () => void;
  /** A message of the docker command itself: it has no time. */
  onMessage: (text: string) => void;
};

/** The engine's time and the text, in UTF-8 up to 4 bytes for each of the 16,000 characters that are sent. */
const MAX_LINE = 64 * 1024 + 64;
const LF = 10;
/** RFC 3339 with nanoseconds, as the engine writes it, and one space. */
const TIMED = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)) ?/;

export function createLineReader({ mayTake, onLine, onDropped, onMessage }: LineReaderOptions) {
  const open: Record<RuntimeStream, { parts: Buffer[]; kept: number; bytes: number }> = {
    stdout: { parts: [], kept: 0, bytes: 0 },
    stderr: { parts: [], kept: 0, bytes: 0 },
  };

  function add(stream: RuntimeStream, part: Buffer): void {
    const line = open[stream];
    line.bytes += part.length;
    if (line.kept >= MAX_LINE || part.length === 0) return;
    // A copy: the chunk would stay in memory as long as its part.
    const kept = Buffer.from(part.subarray(0, MAX_LINE - line.kept));
    line.parts.push(kept);
    line.kept += kept.length;
  }
  function take(stream: RuntimeStream, whole: Buffer | null): void {
    const line = open[stream];
    const bytes = whole?.length ?? line.bytes;
    if (!mayTake(Math.min(bytes, MAX_LINE))) onDropped();
    else {
      const raw = (whole === null ? Buffer.concat(line.parts) : whole.subarray(0, MAX_LINE)).toString('utf8');
      const at = TIMED.exec(raw);
      if (at?.[1] === undefined) onMessage(raw);
      // A carriage return before the line feed is part of the line end.
      else onLine({ at: at[1], stream, text: raw.slice(at[0].length).replace(/\r$/, '') });
    }
    if (whole === null) open[stream] = { parts: [], kept: 0, bytes: 0 };
  }

  return {
    chunk(chunk: Buffer, stream: RuntimeStream): void {
      let from = 0;
      for (let to = chunk.indexOf(LF); to !== -1; to = chunk.indexOf(LF, from)) {
        if (open[stream].bytes === 0) take(stream, chunk.subarray(from, to));
        else {
          add(stream, chunk.subarray(from, to));
          take(stream, null);
        }
        from = to + 1;
      }
      add(stream, chunk.subarray(from));
    },
    /** Takes a last line without a line end. */
    end(): void {
      for (const stream of ['stdout', 'stderr'] as const) if (open[stream].bytes > 0) take(stream, null);
    },
  };
}
