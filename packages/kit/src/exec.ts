/**
 * The only way in which Berth starts other programs: with an argv array, never a shell. Output is
 * bounded. A deadline or an abort signal kills the whole process group, so that child processes end
 * too. Secrets are redacted here, where the output enters Berth.
 */
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { Readable, type Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { StringDecoder } from 'node:string_decoder';
import { type CarriageReturns, createLines, cutLine, MAX_LINE, type OutputLine } from './lines.ts';

export type ExecOptions = {
  cwd?: string;
  /** The complete environment of the program. It inherits nothing else. */
  env: NodeJS.ProcessEnv;
  /** Written to standard input, which is then closed. */
  stdin?: string;
  /**
   * Written to standard input as the program takes it. If it fails, the program is ended and `exec`
   * rejects with that error.
   */
  input?: AsyncIterable<Uint8Array>;
  /**
   * Gets standard output as bytes, and the program waits for it. `stdout` of the result is then
   * empty. A failure ends the program.
   */
  onOutput?: (bytes: Buffer) => Promise<void>;
  signal?: AbortSignal;
  /**
   * Time limit in ms. After it, the process group gets SIGTERM, and SIGKILL `killAfterMs` later.
   */
  timeoutMs?: number;
  killAfterMs?: number;
  /**
   * Called for each line as it arrives: redacted, truncated to `maxLine`, without its line end
   * (lines.ts has the rules).
   */
  onLine?: (line: string, stream: 'stdout' | 'stderr') => void;
  /**
   * Called with the output as it arrives: not redacted, not split. The result then has no stdout
   * and no stderr, so that a program may print without end.
   */
  onChunk?: (chunk: Buffer, stream: 'stdout' | 'stderr') => void;
  /** Meaning of a carriage return for `onLine` (lines.ts). Default: it starts the line again. */
  carriageReturns?: CarriageReturns;
  /**
   * Asked after each part of the output; null: there is room. While the promise is pending, the
   * program waits in its writes. It need not settle: a time limit or an abort ends the wait.
   */
  room?: () => Promise<void> | null;
  /**
   * Secrets to remove from lines, stderr and errors. `stdout` of the result is data and is not
   * redacted.
   */
  redact?: readonly string[];
  /** Limit of each stream in characters; the end of the output is kept. Default 1 MiB. */
  maxOutput?: number;
  /** Limit of a line for `onLine`, in characters. Default MAX_LINE. */
  maxLine?: number;
  /** Linux: the kernel kills the program when this process dies, even by SIGKILL. */
  dieWithParent?: boolean;
};

export type ExecResult = {
  argv: readonly string[];
  /** Exit code; null if a signal ended the program. */
  code: number | null;
  signal: NodeJS.Signals | null;
  /**
   * Data for the caller to parse, not redacted. Do not show it to people; errors contain a redacted
   * copy.
   */
  stdout: string;
  /** True if stdout was longer than the limit, so its beginning is missing. */
  stdoutCut: boolean;
  /** Text for people: redacted, each line truncated to MAX_LINE characters. */
  stderr: string;
  /** Reason why `exec` ended the program, if it did. */
  ended: 'timeout' | 'abort' | null;
};

/** The program could not be started, or (only from `execOk`) it did not exit with 0. */
export class ExecError extends Error {
  override name = 'ExecError';
  readonly result: ExecResult | null;
  constructor(message: string, result: ExecResult | null, options?: ErrorOptions) {
    super(message, options);
    this.result = result;
  }
}

export const redactor = (secrets: readonly string[] = []): ((text: string) => string) => {
  // Replace the longest secret first, because a secret may contain another one.
  const list = [...secrets].filter((s) => s.length > 0).sort((a, b) => b.length - a.length);
  return (text) => list.reduce((t, secret) => t.replaceAll(secret, '***'), text);
};

const SETPRIV = ['/usr/bin/setpriv', '/bin/setpriv'].find((p) => existsSync(p));
/**
 * Linux: wraps `argv` so that the kernel kills the program when the thread that starts it ends,
 * even by SIGKILL. Returns `argv` unchanged if setpriv is missing.
 */
export const dyingWithParent = (argv: readonly string[]): readonly string[] =>
  SETPRIV === undefined ? argv : [SETPRIV, '--pdeathsig', 'KILL', '--', ...argv];
const LF = 10;
/** After the program's exit, its pipes are closed when they are silent for this long. */
const SILENCE_MS = 1_000;

/**
 * Calls `onChunk` with each part and resolves at the end of the stream. While the promise of `room`
 * is pending, it does not read.
 */
function readChunks(
  stream: Readable,
  onChunk: (chunk: Buffer) => void,
  room: () => Promise<void> | null,
): Promise<void> {
  stream.on('data', (chunk: Buffer) => {
    onChunk(chunk);
    const wait = room();
    if (wait === null) return;
    stream.pause();
    void wait.finally(() => stream.resume());
  });
  return new Promise((resolve, reject) => {
    stream.on('error', reject);
    // `close` also fires if the stream was destroyed before its end.
    stream.on('close', () => resolve());
  });
}

async function passBytes(
  stream: Readable,
  onOutput: (bytes: Buffer) => Promise<void>,
): Promise<void> {
  for await (const bytes of stream as AsyncIterable<Buffer>) await onOutput(bytes);
}

async function writeInput(
  input: AsyncIterable<Uint8Array>,
  stdin: Writable,
  onError: (error: unknown) => void,
): Promise<void> {
  async function* watched(): AsyncGenerator<Uint8Array> {
    const parts = input[Symbol.asyncIterator]();
    try {
      for (;;) {
        // Only errors of the input itself: when the program stops reading, `pipeline` throws EPIPE
        // into this generator at the `yield`.
        const next = await parts.next().catch((error: unknown) => {
          onError(error);
          throw error;
        });
        if (next.done === true) return;
        yield next.value;
      }
    } finally {
      await parts.return?.();
    }
  }
  // If the program exits without reading everything, its exit code says why.
  await pipeline(Readable.from(watched(), { objectMode: false, highWaterMark: 1 }), stdin).catch(
    () => undefined,
  );
}

/**
 * Keeps the last `limit` characters of the added text, in complete lines if possible. Copies each
 * character a bounded number of times.
 */
function createTail(limit: number) {
  let text = '';
  let cut = false;
  const trim = (): void => {
    if (text.length <= limit) return;
    cut = true;
    const from = text.length - limit;
    // Cut at the beginning of a line, unless the last line alone is longer than the limit.
    const line = text.indexOf('\n', from - 1) + 1;
    text = text.slice(line > 0 && line < text.length ? line : from);
  };
  return {
    add(more: string): void {
      text += more;
      if (text.length > 2 * limit) trim();
    },
    end(): { text: string; cut: boolean } {
      trim();
      return { text, cut };
    },
  };
}

/**
 * Redacts a line and truncates it to `maxLine`. It redacts first and drops the last characters of a
 * truncated line, because the line may end with half a secret.
 */
function presenter(secrets: readonly string[], maxLine: number) {
  const hide = redactor(secrets);
  const longestSecret = Math.max(0, ...secrets.map((secret) => secret.length));
  const seen = maxLine + longestSecret;
  return {
    seen,
    longestSecret,
    present(raw: string, missing = 0): string {
      if (missing === 0 && raw.length <= seen) return cutLine(hide(raw), maxLine);
      const hidden = hide(raw.slice(0, seen));
      const kept = hidden.slice(0, Math.max(0, hidden.length - longestSecret));
      return cutLine(
        kept,
        maxLine,
        missing + Math.max(0, raw.length - seen) + hidden.length - kept.length,
      );
    },
  };
}

/**
 * Runs `argv` to its end. Throws ExecError only if the program cannot be started; a non-zero exit
 * is a normal result.
 */
export async function exec(argv: readonly string[], options: ExecOptions): Promise<ExecResult> {
  const hide = redactor(options.redact);
  const shown = argv.map(hide);
  const [program, ...args] =
    options.dieWithParent === true && argv.length > 0 ? dyingWithParent(argv) : argv;
  if (program === undefined) throw new ExecError('no program given', null);
  options.signal?.throwIfAborted();

  const child = spawn(program, args, {
    cwd: options.cwd,
    env: options.env,
    detached: true,
    stdio: ['pipe', 'pipe', 'pipe'],
  });
  const limit = options.maxOutput ?? 1_048_576;
  const out = { stdout: createTail(limit), stderr: createTail(limit) };
  let ended: ExecResult['ended'] = null;
  const isEnded = Promise.withResolvers<void>();
  /** Why `input` or `onOutput` failed. */
  let streamError: { error: unknown } | null = null;
  const streamFailed = (error: unknown): void => {
    // After an end from outside, the streams break too.
    if (ended !== null) return;
    streamError = { error };
    end('abort');
  };

  let lastOutputAt = 0;
  const secrets = options.redact ?? [];
  const words = presenter(secrets, MAX_LINE);
  const lines = options.maxLine === undefined ? words : presenter(secrets, options.maxLine);
  const shownLine = (by: typeof words, line: ReturnType<OutputLine['read']>): string =>
    by.present(line.text, line.missing);
  /** Streams whose program waits for room. Their output has not ended. */
  let waiting = 0;
  const room = (): Promise<void> | null => {
    const wait = ended === null ? (options.room?.() ?? null) : null;
    if (wait === null) return null;
    waiting += 1;
    return Promise.race([wait, isEnded.promise]).finally(() => {
      waiting -= 1;
      lastOutputAt = performance.now();
    });
  };
  const reading = (['stdout', 'stderr'] as const).map((stream) => {
    const { onOutput, onChunk, onLine, carriageReturns = 'rewrite' } = options;
    if (stream === 'stdout' && onOutput !== undefined)
      return passBytes(child.stdout, onOutput).catch(streamFailed);
    child[stream].on('data', () => {
      lastOutputAt = performance.now();
    });
    if (onChunk !== undefined)
      return readChunks(child[stream], (chunk) => onChunk(chunk, stream), room);
    const seen = stream === 'stdout' ? lines.seen : Math.max(words.seen, lines.seen);
    const reader = createLines({
      most: seen,
      carriageReturns,
      onLine(line) {
        const read = line.read();
        const shown = shownLine(lines, read);
        if (stream === 'stderr')
          out.stderr.add(`${words === lines ? shown : shownLine(words, read)}\n`);
        onLine?.(shown, stream);
      },
    });
    const asLines = stream === 'stderr' || onLine !== undefined;
    // Standard output is data: its bytes are in the result, whatever the lines are.
    const decoder = new StringDecoder('utf8');
    let last = LF;
    const read = (chunk: Buffer): void => {
      if (stream === 'stdout') out.stdout.add(decoder.write(chunk));
      if (asLines) reader.add(chunk);
      last = chunk.at(-1) ?? last;
    };
    return readChunks(child[stream], read, room).then(() => {
      // Callers split it at line feeds, and a last line without an end is a line.
      if (stream === 'stdout') out.stdout.add(`${decoder.end()}${last === LF ? '' : '\n'}`);
      if (asLines) reader.end();
    });
  });
  /**
   * A child process in its own group may keep the pipes open forever, so silence after the
   * program's exit counts as the end.
   */
  const stopListening = (): void => {
    // Bytes that `onOutput` has not taken yet are not silence.
    for (const stream of options.onOutput === undefined || ended !== null
      ? [child.stdout, child.stderr]
      : [child.stderr])
      stream.destroy();
  };
  let silence: NodeJS.Timeout | undefined;
  const awaitSilence = (): void => {
    const since = performance.now();
    silence = setTimeout(() => {
      // A busy event loop runs timers before it reads, so let it read the output that has already
      // arrived.
      setImmediate(() => {
        if (lastOutputAt > since || (waiting > 0 && ended === null)) awaitSilence();
        else stopListening();
      });
    }, SILENCE_MS);
  };

  // Ignore EPIPE of a program that exits without reading its input; its exit code matters.
  child.stdin.on('error', () => undefined);
  if (options.input === undefined) child.stdin.end(options.stdin ?? '');
  else void writeInput(options.input, child.stdin, streamFailed);

  const killGroup = (signal: NodeJS.Signals): void => {
    if (child.pid === undefined) return;
    try {
      process.kill(-child.pid, signal);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
    }
  };
  let killTimer: NodeJS.Timeout | undefined;
  const end = (why: 'timeout' | 'abort'): void => {
    if (ended !== null) return;
    ended = why;
    isEnded.resolve();
    killGroup('SIGTERM');
    killTimer = setTimeout(() => killGroup('SIGKILL'), options.killAfterMs ?? 3_000);
  };
  const deadline =
    options.timeoutMs === undefined
      ? undefined
      : setTimeout(() => end('timeout'), options.timeoutMs);
  const onAbort = (): void => end('abort');
  options.signal?.addEventListener('abort', onAbort, { once: true });

  try {
    const { code, signal } = await new Promise<{
      code: number | null;
      signal: NodeJS.Signals | null;
    }>((resolve, reject) => {
      child.once('error', (error) =>
        reject(new ExecError(`cannot start ${shown[0]}: ${error.message}`, null, { cause: error })),
      );
      child.once('exit', (c, s) => resolve({ code: c, signal: s }));
    });
    // The program has exited. If `exec` ended it, kill the rest of its process group immediately.
    if (ended !== null) killGroup('SIGKILL');
    awaitSilence();
    await Promise.all(reading);
    if (streamError !== null) throw (streamError as { error: unknown }).error;
    const stdout = out.stdout.end();
    return {
      argv: shown,
      code,
      signal,
      stdout: stdout.text.replaceAll('\r\n', '\n'),
      stdoutCut: stdout.cut,
      stderr: out.stderr.end().text,
      ended,
    };
  } finally {
    clearTimeout(deadline);
    clearTimeout(killTimer);
    clearTimeout(silence);
    options.signal?.removeEventListener('abort', onAbort);
  }
}

/** Like `exec`, but throws ExecError with the last lines of output if the exit code is not 0. */
export async function execOk(argv: readonly string[], options: ExecOptions): Promise<ExecResult> {
  const result = await exec(argv, options);
  if (result.code === 0 && result.ended === null) return result;
  throw exitError(result, options.redact);
}

/**
 * Creates the error for a non-zero exit. Message and result are redacted, so both may be logged.
 * The message names `argv`.
 */
export function exitError(
  result: ExecResult,
  secrets: readonly string[] = [],
  argv = result.argv,
): ExecError {
  const { present, longestSecret } = presenter(secrets, MAX_LINE);
  // If the beginning is missing, the rest may start with the end of a secret.
  const stdout = result.stdout
    .slice(result.stdoutCut ? longestSecret : 0)
    .split('\n')
    .map((line) => present(line))
    .join('\n');
  const shown = { ...result, stdout };
  return new ExecError(describeExit({ ...shown, argv }), shown);
}

/** Limit of the program's output in an error message, in characters. */
const MAX_OUTPUT = 2_000;

/** Describes the exit in one line: program, exit code or signal, last lines of output. */
function describeExit(result: ExecResult): string {
  const how =
    result.ended === 'timeout'
      ? 'exceeded its time limit'
      : result.ended === 'abort'
        ? 'was stopped'
        : result.code === null
          ? `was killed by ${result.signal}`
          : `exited with ${result.code}`;
  const last = (result.stderr.trim() || result.stdout.trim())
    .split('\n')
    .slice(-3)
    .join(' · ')
    .slice(0, MAX_OUTPUT);
  return `${result.argv.slice(0, 3).join(' ')} ${how}${last === '' ? '' : `: ${last}`}`;
}
