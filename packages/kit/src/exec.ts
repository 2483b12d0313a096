/**
 * The only way in which Berth starts other programs: with an argv array, never a shell. Output is bounded. A deadline or an abort
 * signal kills the whole process group, so that child processes end too. Secrets are redacted here, where the output enters Berth.
 */
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { Readable, type Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';

export type ExecOptions = {
  cwd?: string;
  /** The complete environment of the program. It inherits nothing else. */
  env: NodeJS.ProcessEnv;
  /** Written to standard input, which is then closed. */
  stdin?: string;
  /** Written to standard input as the program takes it. If it fails, the program is ended and `exec` rejects with that error. */
  input?: AsyncIterable<Uint8Array>;
  /** Gets standard output as bytes, and the program waits for it. `stdout` of the result is then empty. A failure ends the program. */
  onOutput?: (bytes: Buffer) => Promise<void>;
  signal?: AbortSignal;
  /** Time limit in ms. After it, the process group gets SIGTERM, and SIGKILL `killAfterMs` later. */
  timeoutMs?: number;
  killAfterMs?: number;
  /** Called for each line as it arrives: redacted, truncated to `maxLine`, without its line end. */
  onLine?: (line: string, stream: 'stdout' | 'stderr') => void;
  /**
   * Called with the output as it arrives: not redacted, not split. The result then has no stdout and no stderr, so that a program may
   * print without end.
   */
  onChunk?: (chunk: Buffer, stream: 'stdout' | 'stderr') => void;
  /** Treats carriage returns as line ends, so that `onLine` gets each update of a progress bar. */
  carriageReturns?: boolean;
  /** Secrets to remove from lines, stderr and errors. `stdout` of the result is data and is not redacted. */
  redact?: readonly string[];
  /** Limit of each stream in characters; the end of the output is kept. Default 1 MiB. */
  maxOutput?: number;
  /** Limit of a line for `onLine`, in characters. Default 16,384. */
  maxLine?: number;
  /** Linux: the kernel kills the program when this process dies, even by SIGKILL. */
  dieWithParent?: boolean;
};

export type ExecResult = {
  argv: readonly string[];
  /** Exit code; null if a signal ended the program. */
  code: number | null;
  signal: NodeJS.Signals | null;
  /** Data for the caller to parse, not redacted. Do not show it to people; errors contain a redacted copy. */
  stdout: string;
  /** True if stdout was longer than the limit, so its beginning is missing. */
  stdoutCut: boolean;
  /** Text for people: redacted, each line truncated to 16,384 characters. */
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
 * Linux: wraps `argv` so that the kernel kills the program when the thread that starts it ends, even by SIGKILL. Returns `argv`
 * unchanged if setpriv is missing.
 */
export const dyingWithParent = (argv: readonly string[]): readonly string[] =>
  SETPRIV === undefined ? argv : [SETPRIV, '--pdeathsig', 'KILL', '--', ...argv];
const MAX_LINE = 16_384;
/** After the program's exit, its pipes are closed when they are silent for this long. */
const SILENCE_MS = 1_000;

/**
 * Calls `onLine` with each line and resolves at the end of the stream. A line is truncated to `most` characters, so that a program
 * without line ends cannot fill the memory.
 */
function readLines(
  stream: Readable,
  { most, carriageReturns }: { most: number; carriageReturns: boolean },
  onLine: (line: string, whole: boolean) => void,
): Promise<void> {
  let line = '';
  let length = 0;
  const add = (text: string): void => {
    length += text.length;
    if (line.length < most) line += text.slice(0, most - line.length);
  };
  const flush = (): void => {
    // Remove the carriage return of a CRLF line end. Without `carriageReturns`, a progress bar is one long line.
    if (length === line.length && line.endsWith('\r')) line = line.slice(0, -1);
    onLine(line, length <= most);
    line = '';
    length = 0;
  };
  stream.setEncoding('utf8');
  stream.on('data', (chunk: string) => {
    const text = carriageReturns ? chunk.replaceAll('\r', '\n') : chunk;
    let from = 0;
    for (let to = text.indexOf('\n'); to !== -1; to = text.indexOf('\n', from)) {
      add(text.slice(from, to));
      flush();
      from = to + 1;
    }
    add(text.slice(from));
  });
  return new Promise((resolve, reject) => {
    stream.on('error', reject);
    // `close` also fires if the stream was destroyed before its end.
    stream.on('close', () => {
      if (length > 0) flush();
      resolve();
    });
  });
}

/** Calls `onChunk` with each part and resolves at the end of the stream. */
function readChunks(stream: Readable, onChunk: (chunk: Buffer) => void): Promise<void> {
  stream.on('data', onChunk);
  return new Promise((resolve, reject) => {
    stream.on('error', reject);
    stream.on('close', resolve);
  });
}

async function passBytes(stream: Readable, onOutput: (bytes: Buffer) => Promise<void>): Promise<void> {
  for await (const bytes of stream as AsyncIterable<Buffer>) await onOutput(bytes);
}

async function writeInput(input: AsyncIterable<Uint8Array>, stdin: Writable, onError: (error: unknown) => void): Promise<void> {
  async function* watched(): AsyncGenerator<Uint8Array> {
    const parts = input[Symbol.asyncIterator]();
    try {
      for (;;) {
        // Only errors of the input itself: when the program stops reading, `pipeline` throws EPIPE into this generator at the `yield`.
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
  await pipeline(Readable.from(watched(), { objectMode: false, highWaterMark: 1 }), stdin).catch(() => undefined);
}

/** Keeps the last `limit` characters of the added text, in complete lines if possible. Copies each character a bounded number of times. */
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
 * Redacts a line and truncates it to `maxLine`. It redacts first and drops the last characters of a truncated line, because the line
 * may end with half a secret.
 */
function presenter(secrets: readonly string[], maxLine: number) {
  const hide = redactor(secrets);
  const longestSecret = Math.max(0, ...secrets.map((secret) => secret.length));
  const seen = maxLine + longestSecret;
  return {
    seen,
    longestSecret,
    present(raw: string, whole: boolean): string {
      const all = whole && raw.length <= seen;
      const hidden = hide(all ? raw : raw.slice(0, seen));
      const text = all ? hidden : hidden.slice(0, Math.max(0, hidden.length - longestSecret));
      return all && text.length <= maxLine ? text : `${text.slice(0, maxLine)}… (line cut)`;
    },
  };
}

/** Runs `argv` to its end. Throws ExecError only if the program cannot be started; a non-zero exit is a normal result. */
export async function exec(argv: readonly string[], options: ExecOptions): Promise<ExecResult> {
  const hide = redactor(options.redact);
  const shown = argv.map(hide);
  const [program, ...args] = options.dieWithParent === true && argv.length > 0 ? dyingWithParent(argv) : argv;
  if (program === undefined) throw new ExecError('no program given', null);
  options.signal?.throwIfAborted();

  const child = spawn(program, args, { cwd: options.cwd, env: options.env, detached: true, stdio: ['pipe', 'pipe', 'pipe'] });
  const limit = options.maxOutput ?? 1_048_576;
  const out = { stdout: createTail(limit), stderr: createTail(limit) };
  let ended: ExecResult['ended'] = null;
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
  const reading = (['stdout', 'stderr'] as const).map((stream) => {
    const { onOutput } = options;
    if (stream === 'stdout' && onOutput !== undefined) return passBytes(child.stdout, onOutput).catch(streamFailed);
    child[stream].on('data', () => {
      lastOutputAt = performance.now();
    });
    if (options.onChunk !== undefined) return readChunks(child[stream], (chunk) => options.onChunk?.(chunk, stream));
    const most = stream === 'stdout' ? Math.max(limit, lines.seen) : Math.max(words.seen, lines.seen);
    return readLines(child[stream], { most, carriageReturns: options.carriageReturns === true }, (raw, whole) => {
      const shown = stream === 'stderr' || options.onLine !== undefined ? lines.present(raw, whole) : '';
      out[stream].add(`${stream === 'stdout' ? raw : words === lines ? shown : words.present(raw, whole)}\n`);
      options.onLine?.(shown, stream);
    });
  });
  /** A child process in its own group may keep the pipes open forever, so silence after the program's exit counts as the end. */
  const stopListening = (): void => {
    // Bytes that `onOutput` has not taken yet are not silence.
    for (const stream of options.onOutput === undefined || ended !== null ? [child.stdout, child.stderr] : [child.stderr]) stream.destroy();
  };
  let silence: NodeJS.Timeout | undefined;
  const awaitSilence = (): void => {
    const since = performance.now();
    silence = setTimeout(() => {
      // A busy event loop runs timers before it reads, so let it read the output that has already arrived.
      setImmediate(() => {
        if (lastOutputAt > since) awaitSilence();
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
    killGroup('SIGTERM');
    killTimer = setTimeout(() => killGroup('SIGKILL'), options.killAfterMs ?? 3_000);
  };
  const deadline = options.timeoutMs === undefined ? undefined : setTimeout(() => end('timeout'), options.timeoutMs);
  const onAbort = (): void => end('abort');
  options.signal?.addEventListener('abort', onAbort, { once: true });

  try {
    const { code, signal } = await new Promise<{ code: number | null; signal: NodeJS.Signals | null }>((resolve, reject) => {
      child.once('error', (error) => reject(new ExecError(`cannot start ${shown[0]}: ${error.message}`, null, { cause: error })));
      child.once('exit', (c, s) => resolve({ code: c, signal: s }));
    });
    // The program has exited. If `exec` ended it, kill the rest of its process group immediately.
    if (ended !== null) killGroup('SIGKILL');
    awaitSilence();
    await Promise.all(reading);
    if (streamError !== null) throw (streamError as { error: unknown }).error;
    const stdout = out.stdout.end();
    return { argv: shown, code, signal, stdout: stdout.text, stdoutCut: stdout.cut, stderr: out.stderr.end().text, ended };
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

/** Creates the error for a non-zero exit. Message and result are redacted, so both may be logged. The message names `argv`. */
export function exitError(result: ExecResult, secrets: readonly string[] = [], argv = result.argv): ExecError {
  const { present, longestSecret } = presenter(secrets, MAX_LINE);
  // If the beginning is missing, the rest may start with the end of a secret.
  const stdout = result.stdout
    .slice(result.stdoutCut ? longestSecret : 0)
    .split('\n')
    .map((line) => present(line, true))
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
  const last = (result.stderr.trim() || result.stdout.trim()).split('\n').slice(-3).join(' · ').slice(0, MAX_OUTPUT);
  return `${result.argv.slice(0, 3).join(' ')} ${how}${last === '' ? '' : `: ${last}`}`;
}
