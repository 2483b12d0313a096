/** Reads a part of the log of a container once: the newest lines of a range, within limits. */
import { MAX_LINE_CHARS, type RuntimeStream } from '@berth/wire/runtime';
import type { ShownText } from '../secrets/shown-text.ts';
import type { Docker } from '../engine/docker.ts';
import { createLineReader, type RawLine } from './line-reader.ts';

export type Range = {
  tail: number;
  since: string | null;
  until: string | null;
  /** Lines after this one only, which the engine's `--since` includes. */
  after: string | null;
  stream: RuntimeStream | null;
};
export type History = { lines: RawLine[]; leftOut: number; problem: string | null };

/** Bytes of the lines that are kept while the log is read. */
const MOST_BYTES = 3 * 1024 * 1024;
/**
 * The engine takes the times of the two streams independently, so a line may have an earlier time
 * than the line before it.
 */
const DISORDER_MS = 1;

/** Returns the time `ms` before, with the engine's nine digits, so that times compare as texts. */
export const earlier = (at: string, ms: number): string =>
  new Date(Date.parse(at) - ms).toISOString().replace('Z', '000000Z');

export async function readHistory(
  docker: Pick<Docker, 'logs'>,
  id: string,
  range: Range,
  shown: ShownText,
  signal: AbortSignal,
  mostBytes = MOST_BYTES,
): Promise<History> {
  const { tail, since, until, stream } = range;
  const after = range.after === null ? null : earlier(range.after, DISORDER_MS);
  let lines: RawLine[] = [];
  let head = 0;
  let bytes = 0;
  let count = 0;
  let message: string | null = null;
  const drop = (): void => {
    bytes -= lines[head]?.text.length ?? 0;
    head += 1;
    if (head < 2_000 || head * 2 < lines.length) return;
    lines = lines.slice(head);
    head = 0;
  };
  const seen: Record<RuntimeStream, number> = { stdout: 0, stderr: 0 };
  /** The stream of the line that the range begins after: its earlier lines are not in the range. */
  function forget(from: RuntimeStream): void {
    lines = lines.slice(head).filter((line) => line.stream !== from);
    head = 0;
    bytes = lines.reduce((sum, line) => sum + line.text.length, 0);
    count -= seen[from];
    seen[from] = 0;
  }
  const reader = createLineReader({
    mayTake: () => true,
    onDropped: () => undefined,
    onMessage: (text) => (message ??= text),
    onLine(line) {
      if ((stream !== null && line.stream !== stream) || (after !== null && line.at <= after))
        return;
      if (line.at === range.after) return forget(line.stream);
      count += 1;
      seen[line.stream] += 1;
      lines.push(line);
      bytes += line.text.length;
      while (lines.length - head > tail || (bytes > mostBytes && lines.length > head)) drop();
    },
  });
  // Without a beginning, the engine reads the end of the log only. One line more shows whether
  // there are older ones.
  const whole = since !== null || after !== null || stream !== null || until !== null;
  const problem = await docker.logs(id, {
    follow: false,
    tail: whole ? null : tail + 1,
    since: after ?? since,
    until,
    onChunk: reader.chunk,
    signal,
  });
  reader.end();
  const newest = inOrder(lines.slice(head)).map((line) => ({
    ...line,
    text: shown(line.text, MAX_LINE_CHARS, true),
  }));
  return {
    lines: newest,
    leftOut: count - newest.length,
    problem: problem === null ? null : (message ?? problem),
  };
}

/**
 * Merges the lines of both streams by the engine's times. The lines of one stream stay in their
 * order, also if its clock was set back.
 */
export function inOrder(lines: readonly RawLine[]): RawLine[] {
  const [out, err] = [
    lines.filter((l) => l.stream === 'stdout'),
    lines.filter((l) => l.stream === 'stderr'),
  ];
  if (out.length === 0 || err.length === 0) return [...lines];
  const merged: RawLine[] = [];
  for (let [i, j] = [0, 0]; i < out.length || j < err.length; ) {
    const [a, b] = [out[i], err[j]];
    if (a !== undefined && (b === undefined || a.at <= b.at)) {
      merged.push(a);
      i += 1;
    } else if (b !== undefined) {
      merged.push(b);
      j += 1;
    }
  }
  return merged;
}
