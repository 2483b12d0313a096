/**
 * The only way in which Berth starts other programs: with an argv array, never a shell. Output is
 * bounded. A deadline or an abort signal kills the whole process group, so that child processes end
 * too. Secrets are redacted here, where the output enters Berth.
 */
import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { Readable, type Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { StringDecoder } from 'node:string_decoder';
import { createTail, passBytes, presenter, readChunks, redactor } from './exec-output.ts';
import { type CarriageReturns, createLines, MAX_LINE, type OutputLine } from './lines.ts';

export type ExecOptions = {
  cwd?: string;
  /** The complete environment of the program. It inherits nothing else. */
  env: NodeJS.ProcessEnv;
  /** Written to standard input, which is then closed. */
  stdin?: string;
  /**
   * Streamed to standard input as fast as the program reads. If the stream fails, `exec` ends the
   * program and rejects with that error.
   */
  input?: AsyncIterable<Uint8Array>;
  /**
   * Receives standard output as bytes; the program waits for each promise. `stdout` of the result
   * is then empty. A rejected promise ends the program.
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
   * and no stderr, so a program can print any amount of output.
   */
  onChunk?: (chunk: Buffer, stream: 'stdout' | 'stderr') => void;
  /** Meaning of a carriage return for `onLine` (lines.ts). Default: it restarts the line. */
  carriageReturns?: CarriageReturns;
  /**
   * Called after each part of the output; returns null if there is room. While a promise is
   * pending, the program waits in its writes. The promise need not settle, because a time limit or
   * an abort ends the wait.
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

async function writeInput(
  input: AsyncIterable<Uint8Array>,
  stdin: Writable,
  onError: (error: unknown) => void,
): Promise<void> {
  async function* watched(): AsyncGenerator<Uint8Array> {
    const parts = input[Symbol.asyncIterator]();
    try {
      for (;;) {
        // Report only errors of the input itself: when the program stops reading, `pipeline` throws
        // EPIPE into this generator at the `yield`.
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

type OutputStream = 'stdout' | 'stderr';
type Presenter = ReturnType<typeof presenter>;

/** State of a running program. */
type Run = {
  readonly options: ExecOptions;
  readonly child: ChildProcessWithoutNullStreams;
  readonly tails: Record<OutputStream, ReturnType<typeof createTail>>;
  /**
   * `forPeople` redacts and truncates texts for people; `forLines` does so for lines of `onLine`.
   */
  readonly forPeople: Presenter;
  readonly forLines: Presenter;
  ended: ExecResult['ended'];
  readonly isEnded: PromiseWithResolvers<void>;
  /** Error of `input` or `onOutput`, if one failed. */
  streamError: { error: unknown } | null;
  lastOutputAt: number;
  /** Number of streams for which the program waits for room. Their output has not ended. */
  waiting: number;
  killTimer: NodeJS.Timeout | undefined;
  silence: NodeJS.Timeout | undefined;
};

/**
 * Runs `argv` to its end. Throws ExecError only if the program cannot be started; a non-zero exit
 * is a normal result.
 */
export async function exec(argv: readonly string[], options: ExecOptions): Promise<ExecResult> {
  const redacted = argv.map(redactor(options.redact));
  options.signal?.throwIfAborted();
  const run = start(argv, options);
  const exit = exitOf(run, redacted[0]);
  const reading = [read(run, 'stdout'), read(run, 'stderr')];
  feed(run);
  const { timeoutMs } = options;
  const deadline =
    timeoutMs === undefined ? undefined : setTimeout(() => end(run, 'timeout'), timeoutMs);
  const onAbort = (): void => end(run, 'abort');
  options.signal?.addEventListener('abort', onAbort, { once: true });
  try {
    const { code, signal } = await exit;
    // The program has exited. If `exec` ended it, kill the rest of its process group immediately.
    if (run.ended !== null) killGroup(run, 'SIGKILL');
    awaitSilence(run);
    await Promise.all(reading);
    if (run.streamError !== null) throw run.streamError.error;
    const stdout = run.tails.stdout.end();
    return {
      argv: redacted,
      code,
      signal,
      stdout: stdout.text.replaceAll('\r\n', '\n'),
      stdoutCut: stdout.cut,
      stderr: run.tails.stderr.end().text,
      ended: run.ended,
    };
  } finally {
    clearTimeout(deadline);
    clearTimeout(run.killTimer);
    clearTimeout(run.silence);
    options.signal?.removeEventListener('abort', onAbort);
  }
}

function start(argv: readonly string[], options: ExecOptions): Run {
  const [program, ...args] =
    options.dieWithParent === true && argv.length > 0 ? dyingWithParent(argv) : argv;
  if (program === undefined) throw new ExecError('no program given', null);
  const child = spawn(program, args, {
    cwd: options.cwd,
    env: options.env,
    detached: true,
    stdio: ['pipe', 'pipe', 'pipe'],
  });
  const { redact: secrets = [], maxOutput = 1_048_576, maxLine } = options;
  const forPeople = presenter(secrets, MAX_LINE);
  return {
    options,
    child,
    tails: { stdout: createTail(maxOutput), stderr: createTail(maxOutput) },
    forPeople,
    forLines: maxLine === undefined ? forPeople : presenter(secrets, maxLine),
    ended: null,
    isEnded: Promise.withResolvers(),
    streamError: null,
    lastOutputAt: 0,
    waiting: 0,
    killTimer: undefined,
    silence: undefined,
  };
}

const exitOf = (
  { child }: Run,
  program: string | undefined,
): Promise<Pick<ExecResult, 'code' | 'signal'>> =>
  new Promise((resolve, reject) => {
    child.once('error', (error) =>
      reject(new ExecError(`cannot start ${program}: ${error.message}`, null, { cause: error })),
    );
    child.once('exit', (code, signal) => resolve({ code, signal }));
  });

/** Reads a stream. Resolves at its end. */
function read(run: Run, stream: OutputStream): Promise<void> {
  const { child, options } = run;
  const { onOutput, onChunk } = options;
  if (stream === 'stdout' && onOutput !== undefined)
    return passBytes(child.stdout, onOutput).catch((error: unknown) => streamFailed(run, error));
  child[stream].on('data', () => {
    run.lastOutputAt = performance.now();
  });
  if (onChunk === undefined) return readText(run, stream);
  return readChunks(
    child[stream],
    (chunk) => onChunk(chunk, stream),
    () => roomFor(run),
  );
}

/** Reads a stream into its tail, and also into lines if a caller uses them. */
async function readText(run: Run, stream: OutputStream): Promise<void> {
  const { child, options, tails } = run;
  const lines = linesOf(run, stream);
  const asLines = stream === 'stderr' || options.onLine !== undefined;
  // The result must contain standard output unchanged, so do not take it from `lines`.
  const decoder = new StringDecoder('utf8');
  let last = LF;
  const onChunk = (chunk: Buffer): void => {
    if (stream === 'stdout') tails.stdout.add(decoder.write(chunk));
    if (asLines) lines.add(chunk);
    last = chunk.at(-1) ?? last;
  };
  await readChunks(child[stream], onChunk, () => roomFor(run));
  // Callers split the text at line feeds, so add a missing line end after the last line.
  if (stream === 'stdout') tails.stdout.add(`${decoder.end()}${last === LF ? '' : '\n'}`);
  if (asLines) lines.end();
}

function linesOf(
  { options, tails, forPeople, forLines }: Run,
  stream: OutputStream,
): ReturnType<typeof createLines> {
  const present = (by: Presenter, line: ReturnType<OutputLine['read']>): string =>
    by.present(line.text, line.missing);
  return createLines({
    most: stream === 'stdout' ? forLines.seen : Math.max(forPeople.seen, forLines.seen),
    carriageReturns: options.carriageReturns ?? 'rewrite',
    onLine(line) {
      const raw = line.read();
      const text = present(forLines, raw);
      if (stream === 'stderr')
        tails.stderr.add(`${forPeople === forLines ? text : present(forPeople, raw)}\n`);
      options.onLine?.(text, stream);
    },
  });
}

/**
 * Returns null if there is room for more output, else a promise that resolves when there is room or
 * when the run ends.
 */
function roomFor(run: Run): Promise<void> | null {
  const wait = run.ended === null ? (run.options.room?.() ?? null) : null;
  if (wait === null) return null;
  run.waiting += 1;
  return Promise.race([wait, run.isEnded.promise]).finally(() => {
    run.waiting -= 1;
    run.lastOutputAt = performance.now();
  });
}

function feed(run: Run): void {
  const { child, options } = run;
  // Ignore EPIPE of a program that exits without reading its input; its exit code matters.
  child.stdin.on('error', () => undefined);
  if (options.input === undefined) child.stdin.end(options.stdin ?? '');
  else void writeInput(options.input, child.stdin, (error) => streamFailed(run, error));
}

function streamFailed(run: Run, error: unknown): void {
  // Ignore errors after a timeout or an abort, because these break the streams too.
  if (run.ended !== null) return;
  run.streamError = { error };
  end(run, 'abort');
}

function end(run: Run, why: 'timeout' | 'abort'): void {
  if (run.ended !== null) return;
  run.ended = why;
  run.isEnded.resolve();
  killGroup(run, 'SIGTERM');
  run.killTimer = setTimeout(() => killGroup(run, 'SIGKILL'), run.options.killAfterMs ?? 3_000);
}

function killGroup({ child }: Run, signal: NodeJS.Signals): void {
  if (child.pid === undefined) return;
  try {
    process.kill(-child.pid, signal);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

/**
 * A child process in its own group can keep the pipes open forever, so silence after the program's
 * exit counts as the end.
 */
function awaitSilence(run: Run): void {
  const since = performance.now();
  run.silence = setTimeout(() => {
    // A busy event loop runs timers before it reads, so let it read the output that has already
    // arrived.
    setImmediate(() => {
      if (run.lastOutputAt > since || (run.waiting > 0 && run.ended === null)) awaitSilence(run);
      else stopListening(run);
    });
  }, SILENCE_MS);
}

function stopListening({ child, options, ended }: Run): void {
  // While `onOutput` still takes bytes, stdout is not silent, so keep it open.
  if (options.onOutput === undefined || ended !== null) child.stdout.destroy();
  child.stderr.destroy();
}

/** Like `exec`, but throws ExecError with the last lines of output if the exit code is not 0. */
export async function execOk(argv: readonly string[], options: ExecOptions): Promise<ExecResult> {
  const result = await exec(argv, options);
  if (result.code === 0 && result.ended === null) return result;
  throw exitError(result, options.redact);
}

/**
 * Creates the error for a non-zero exit. Message and result are redacted, so both can be logged.
 * The message names `argv`.
 */
export function exitError(
  result: ExecResult,
  secrets: readonly string[] = [],
  argv = result.argv,
): ExecError {
  const { present, longestSecret } = presenter(secrets, MAX_LINE);
  // If the beginning is missing, the rest can start with the end of a secret.
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

function howItEnded({ ended, code, signal }: ExecResult): string {
  if (ended === 'timeout') return 'exceeded its time limit';
  if (ended === 'abort') return 'was stopped';
  return code === null ? `was killed by ${signal}` : `exited with ${code}`;
}

/** Describes the exit in one line: program, exit code or signal, last lines of output. */
function describeExit(result: ExecResult): string {
  const last = (result.stderr.trim() || result.stdout.trim())
    .split('\n')
    .slice(-3)
    .join(' · ')
    .slice(0, MAX_OUTPUT);
  return `${result.argv.slice(0, 3).join(' ')} ${howItEnded(result)}${last === '' ? '' : `: ${last}`}`;
}
