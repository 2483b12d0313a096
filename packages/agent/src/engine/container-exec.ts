/** Runs commands inside a container. */
import { createLines, cutLine, MAX_LINE } from '@berth/kit/lines';
import { TaskFailure } from '../failures.ts';
import type { ExecuteOptions, Executed } from './docker.ts';
import { type EngineClient, EngineError } from './engine-client.ts';
import { reasonOf } from './engine-errors.ts';
import { createFrameReader } from './log-frames.ts';

const MAX_OUTPUT = 64 * 1024;
const MAX_CHECK_OUTPUT = 16 * 1024;
const MAX_FILES = 1024 * 1024;
const READ_MS = 10_000;

export async function execute(
  engine: EngineClient,
  container: string,
  command: readonly string[],
  { signal, timeoutMs, onLine }: ExecuteOptions,
): Promise<Executed> {
  const output = createOutput(MAX_OUTPUT);
  const lines = onLine === undefined ? null : createLineReaders(onLine);
  const late = AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)]);
  const code = await exitCodeOf(engine, container, command, late, (chunk, stream) => {
    output.add(chunk, stream);
    lines?.[stream].add(chunk);
  });
  lines?.stdout.end();
  lines?.stderr.end();
  return { code, ...output.texts() };
}

/** Reads files with the container's own `cat`; null if that fails. */
export async function readInside(
  engine: EngineClient,
  container: string,
  paths: readonly string[],
): Promise<string | null> {
  const output = createOutput(MAX_FILES);
  const late = AbortSignal.timeout(READ_MS);
  try {
    await exitCodeOf(engine, container, ['cat', ...paths], late, output.add);
  } catch (error) {
    // Some files might be unreadable: return the part that was read.
    if (!late.aborted && !isEngineFailure(error)) throw error;
  }
  return output.texts().stdout || null;
}

export async function runInside(
  engine: EngineClient,
  container: string,
  command: readonly string[],
  { timeoutMs, signal }: { timeoutMs: number; signal: AbortSignal },
): Promise<{ ok: boolean; output: string; isLate: boolean }> {
  const output = createOutput(MAX_CHECK_OUTPUT);
  const printed = (): string => `${output.texts().stdout}${output.texts().stderr}`;
  const late = AbortSignal.timeout(timeoutMs);
  const either = AbortSignal.any([signal, late]);
  try {
    const code = await exitCodeOf(engine, container, command, either, output.add);
    return { ok: code === 0, output: printed(), isLate: false };
  } catch (error) {
    signal.throwIfAborted();
    if (late.aborted) {
      const seconds = Math.round(timeoutMs / 1000);
      return { ok: false, output: `${printed()}\nno result within ${seconds} s`, isLate: true };
    }
    if (!isEngineFailure(error)) throw error;
    return { ok: false, output: `${printed()}${reasonOf(error)}`, isLate: false };
  }
}

const isEngineFailure = (error: unknown): boolean =>
  error instanceof EngineError || error instanceof TaskFailure;

type OnOutput = (chunk: Buffer, stream: 'stdout' | 'stderr') => void;

/** When the signal aborts, the command keeps running inside the container. */
async function exitCodeOf(
  engine: EngineClient,
  container: string,
  command: readonly string[],
  signal: AbortSignal,
  onOutput: OnOutput,
): Promise<number> {
  const { Id: id } = await engine.call('POST /containers/{id}/exec', {
    params: { id: container },
    body: { AttachStdout: true, AttachStderr: true, Cmd: [...command] },
    signal,
  });
  await engine.stream('POST /exec/{id}/start', {
    params: { id },
    body: { Detach: false, Tty: false },
    signal,
    timeoutMs: null,
    onChunk: createFrameReader(onOutput).add,
  });
  const { ExitCode } = await engine.call('GET /exec/{id}/json', { params: { id }, signal });
  return ExitCode ?? -1;
}

/** Keeps the last `limit` bytes of each stream. */
function createOutput(limit: number) {
  const kept = { stdout: Buffer.alloc(0), stderr: Buffer.alloc(0) };
  return {
    add(chunk: Buffer, stream: 'stdout' | 'stderr'): void {
      kept[stream] = Buffer.concat([kept[stream], chunk]).subarray(-limit);
    },
    texts: () => ({ stdout: kept.stdout.toString('utf8'), stderr: kept.stderr.toString('utf8') }),
  };
}

function createLineReaders(onLine: (line: string) => void) {
  const create = () =>
    createLines({
      onLine(line) {
        const { text, missing } = line.read();
        onLine(cutLine(text, MAX_LINE, missing));
      },
    });
  return { stdout: create(), stderr: create() };
}
