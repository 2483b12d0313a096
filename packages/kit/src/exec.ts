/**
 * The one way Berth starts another program: an argv array, never a shell; bounded output, a deadline, an abort signal,
 * and a group kill, so that what the program itself started goes with it. Secrets are redacted here, where text enters.
 */
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import type { Readable } from 'node:stream';

export type ExecOptions = {
  cwd?: string;
  /** The whole environment of the program; nothing is inherited unless it is given here. */
  env: NodeJS.ProcessEnv;
  /** Written to standard input, which is then closed. */
  stdin?: string;
  signal?: AbortSignal;
  /** Wall clock, milliseconds; after it SIGTERM, `killAfterMs` later SIGKILL, to the whole group. */
  timeoutMs?: number;
  killAfterMs?: number;
  /** Each line as it comes, redacted and cut to `maxLine`, without its end. */
  onLine?: (line: string, stream: 'stdout' | 'stderr') => void;
  /** What a carriage return ends is a line of its own: a progress bar is heard while it moves. */
  carriageReturns?: boolean;
  /** Texts that must not appear in a line, in stderr or in an error. `stdout` of the result is data and keeps them. */
  redact?: readonly string[];
  /** How much of each stream is kept, in characters; the tail wins. Default 1 MiB. */
  keep?: number;
  /** Longest line that `onLine` gets, in characters. Default 16,384. */
  maxLine?: number;
  /** Linux: the program is killed when this process dies, even by SIGKILL. */
  dieWithParent?: boolean;
};

export type ExecResult = {
  argv: readonly string[];
  /** null when it was ended by a signal. */
  code: number | null;
  signal: NodeJS.Signals | null;
  /** Data for the caller to parse: lines of any length, not redacted. Never show it; errors carry a redacted copy. */
  stdout: string;
  /** True when stdout was longer than `keep`: its beginning is missing. */
  stdoutCut: boolean;
  /** Words for people: redacted, each line cut to 16,384 characters. */
  stderr: string;
  /** Why we ended it, if we did. */
  ended: 'timeout' | 'abort' | null;
};

/** A program could not be started, or ended otherwise than with 0 (only from `execOk`). */
export class ExecError extends Error {
  override name = 'ExecError';
  readonly result: ExecResult | null;
  constructor(message: string, result: ExecResult | null, options?: ErrorOptions) {
    super(message, options);
    this.result = result;
  }
}

export const redactor = (secrets: readonly string[] = []): ((text: string) => string) => {
  // The longest first: a secret may contain another.
  const list = [...secrets].filter((s) => s.length > 0).sort((a, b) => b.length - a.length);
  return (text) => list.reduce((t, secret) => t.replaceAll(secret, '***'), text);
};

const SETPRIV = ['/usr/bin/setpriv', '/bin/setpriv'].find((p) => existsSync(p));
/** Linux: what `argv` starts is killed when the thread that starts it ends, even by SIGKILL. As it is where there is no setpriv. */
export const dyingWithParent = (argv: readonly string[]): readonly string[] =>
  SETPRIV === undefined ? argv : [SETPRIV, '--pdeathsig', 'KILL', '--', ...argv];
const MAX_LINE = 16_384;
/** How long pipes may be silent after the program's own end before they are no longer listened to. */
const SILENCE_MS = 1_000;

/**
 * Calls `onLine` with each line, and resolves at the end. A line is kept up to `most` characters: a program that never ends
 * its line must not fill our memory.
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
    // What a carriage return ends is a line of its own only where a line feed follows; a progress bar is one long line.
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
    // Also when it was destroyed before its end.
    stream.on('close', () => {
      if (length > 0) flush();
      resolve();
    });
  });
}

/** The last `keep` characters of what was added, in whole lines where a line fits. Copies each character a bounded number of times. */
function createTail(keep: number) {
  let text = '';
  let cut = false;
  const trim = (): void => {
    if (text.length <= keep) return;
    cut = true;
    const from = text.length - keep;
    // At the beginning of a line, unless the last line alone is longer than `keep`.
    const line = text.indexOf('\n', from - 1) + 1;
    text = text.slice(line > 0 && line < text.length ? line : from);
  };
  return {
    add(more: string): void {
      text += more;
      if (text.length > 2 * keep) trim();
    },
    end(): { text: string; cut: boolean } {
      trim();
      return { text, cut };
    },
  };
}

/** Redacts a line and cuts it to `maxLine`. Redacts first and drops the last characters of a cut line: half a secret is one, too. */
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

/** Runs `argv` to its end. Throws ExecError only when it cannot be started; a bad exit is a result. */
export async function exec(argv: readonly string[], options: ExecOptions): Promise<ExecResult> {
  const hide = redactor(options.redact);
  const shown = argv.map(hide);
  const [program, ...args] = options.dieWithParent === true && argv.length > 0 ? dyingWithParent(argv) : argv;
  if (program === undefined) throw new ExecError('no program given', null);
  options.signal?.throwIfAborted();

  const child = spawn(program, args, { cwd: options.cwd, env: options.env, detached: true, stdio: ['pipe', 'pipe', 'pipe'] });
  const keep = options.keep ?? 1_048_576;
  const out = { stdout: createTail(keep), stderr: createTail(keep) };
  let ended: ExecResult['ended'] = null;

  let heardAt = 0;
  const secrets = options.redact ?? [];
  const words = presenter(secrets, MAX_LINE);
  const heard = options.maxLine === undefined ? words : presenter(secrets, options.maxLine);
  const reading = (['stdout', 'stderr'] as const).map((stream) => {
    child[stream].on('data', () => {
      heardAt = performance.now();
    });
    const most = stream === 'stdout' ? Math.max(keep, heard.seen) : Math.max(words.seen, heard.seen);
    return readLines(child[stream], { most, carriageReturns: options.carriageReturns === true }, (raw, whole) => {
      const shown = stream === 'stderr' || options.onLine !== undefined ? heard.present(raw, whole) : '';
      out[stream].add(`${stream === 'stdout' ? raw : words === heard ? shown : words.present(raw, whole)}\n`);
      options.onLine?.(shown, stream);
    });
  });
  /** What the program left running in a group of its own may hold the pipes for ever: silence after its end is the end. */
  const stopListening = (): void => {
    for (const stream of [child.stdout, child.stderr]) stream.destroy();
  };
  let silence: NodeJS.Timeout | undefined;
  const awaitSilence = (): void => {
    const since = performance.now();
    silence = setTimeout(() => {
      // A busy event loop runs its timers before it reads: let it read what has come.
      setImmediate(() => {
        if (heardAt > since) awaitSilence();
        else stopListening();
      });
    }, SILENCE_MS);
  };

  // A program that exits without reading its input gives EPIPE here; its exit code is what counts.
  child.stdin.on('error', () => undefined);
  child.stdin.end(options.stdin ?? '');

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
    // The program is gone; who is left of its group after we ended it goes at once.
    if (ended !== null) killGroup('SIGKILL');
    awaitSilence();
    await Promise.all(reading);
    const stdout = out.stdout.end();
    return { argv: shown, code, signal, stdout: stdout.text, stdoutCut: stdout.cut, stderr: out.stderr.end().text, ended };
  } finally {
    clearTimeout(deadline);
    clearTimeout(killTimer);
    clearTimeout(silence);
    options.signal?.removeEventListener('abort', onAbort);
  }
}

/** As `exec`, but anything else than exit code 0 is an ExecError with the last lines of what it said. */
export async function execOk(argv: readonly string[], options: ExecOptions): Promise<ExecResult> {
  const result = await exec(argv, options);
  if (result.code === 0 && result.ended === null) return result;
  throw exitError(result, options.redact);
}

/** The error of a bad exit. Its message and its result are redacted: both may be logged. `argv`: the words that name the program. */
export function exitError(result: ExecResult, secrets: readonly string[] = [], argv = result.argv): ExecError {
  const { present, longestSecret } = presenter(secrets, MAX_LINE);
  // Where the beginning is missing, the end of a secret may be the first that is left.
  const stdout = result.stdout
    .slice(result.stdoutCut ? longestSecret : 0)
    .split('\n')
    .map((line) => present(line, true))
    .join('\n');
  const shown = { ...result, stdout };
  return new ExecError(describeExit({ ...shown, argv }), shown);
}

/** Longest part of a message that repeats what a program said, in characters. */
const MAX_WORDS = 2_000;

/** One line a person can read: what ran, how it ended, the last thing it said. */
function describeExit(result: ExecResult): string {
  const how =
    result.ended === 'timeout'
      ? 'took too long'
      : result.ended === 'abort'
        ? 'was stopped'
        : result.code === null
          ? `was ended by ${result.signal}`
          : `exited with ${result.code}`;
  const last = (result.stderr.trim() || result.stdout.trim()).split('\n').slice(-3).join(' · ').slice(0, MAX_WORDS);
  return `${result.argv.slice(0, 3).join(' ')} ${how}${last === '' ? '' : `: ${last}`}`;
}
