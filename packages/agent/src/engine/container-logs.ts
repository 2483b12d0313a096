/** Reads the log of a container. */
import { createLines, cutLine, MAX_LINE } from '@berth/kit/lines';
import type { ReadLogOptions } from './docker.ts';
import type { EngineClient, StreamOptions } from './engine-client.ts';
import { reasonOf } from './engine-errors.ts';
import { engineTime } from './engine-time.ts';
import { createFrameReader, type OnOutput } from './log-frames.ts';

type LogQuery = NonNullable<StreamOptions<'GET /containers/{id}/logs'>['query']>;
type LogLine = { stream: 'stdout' | 'stderr'; text: string };

const READ_MS = 30_000;
const LAST_LINES_MS = 20_000;

/** Returns the engine's error, or null. Rejects only with the signal's reason. */
export async function readLog(
  engine: EngineClient,
  id: string,
  { follow, tail, since, until, onChunk, signal }: ReadLogOptions,
): Promise<string | null> {
  try {
    const query: LogQuery = {
      timestamps: true,
      follow,
      tail: tail ?? undefined,
      since: since === null ? undefined : engineTime(since),
      until: until === null ? undefined : engineTime(until),
    };
    return await readOutput(engine, id, query, follow ? null : READ_MS, onChunk, signal);
  } catch (error) {
    signal.throwIfAborted();
    return reasonOf(error);
  }
}

/** Returns the last lines; after an error, returns the lines read so far. */
export async function lastLines(
  engine: EngineClient,
  id: string,
  count: number,
): Promise<LogLine[]> {
  const lines: LogLine[] = [];
  const readers = { stdout: lineReader('stdout', lines), stderr: lineReader('stderr', lines) };
  const error = await readOutput(engine, id, { tail: count }, LAST_LINES_MS, (chunk, stream) =>
    readers[stream].add(chunk),
  ).catch(reasonOf);
  readers.stdout.end();
  readers.stderr.end();
  return error === null || lines.length > 0 ? lines : [{ stream: 'stderr', text: error }];
}
const lineReader = (stream: LogLine['stream'], lines: LogLine[]) =>
  createLines({
    onLine(line) {
      const { text, missing } = line.read();
      lines.push({ stream, text: cutLine(text, MAX_LINE, missing) });
    },
  });

/** Returns the error that the engine sent in place of output, or null. */
async function readOutput(
  engine: EngineClient,
  id: string,
  query: LogQuery,
  timeoutMs: number | null,
  onOutput: OnOutput,
  signal?: AbortSignal,
): Promise<string | null> {
  const frames = createFrameReader(onOutput);
  await engine.stream('GET /containers/{id}/logs', {
    params: { id },
    query: { stdout: true, stderr: true, ...query },
    timeoutMs,
    signal,
    onChunk: frames.add,
  });
  return frames.error();
}
