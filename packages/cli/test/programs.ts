/**
 * The command line as a process of its own: in a pipe, in a terminal, and in the terminal of a
 * shell.
 */
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { promisify, stripVTControlCharacters } from 'node:util';
import { messageOf } from '@berth/kit/message-of';
import { repositoryRoot } from '@berth/testbed/config';
import { waitFor } from '@berth/testbed/wait';
import { afterAll, beforeAll, onTestFinished } from 'vitest';
import type { Result } from './support.ts';

const BERTH = join(repositoryRoot, 'bin', 'berth');
const SCRIPT = '/usr/bin/script';
/** A busy machine starts a process in seconds. */
const DEADLINE_MS = 60_000;

export const whyNoTerminal = existsSync(SCRIPT) ? undefined : 'no script: apt-get install bsdutils';
/** A program of PATH. */
export const found = (program: string): boolean =>
  (process.env['PATH'] ?? '').split(delimiter).some((folder) => existsSync(join(folder, program)));

/**
 * Bundles the command line as set-up does: the tests run what people run. Call it once in a file.
 */
export const useBundle = (): void =>
  beforeAll(async () => {
    const { bundleIsCurrent, provideBundle } = (await import(
      pathToFileURL(join(repositoryRoot, 'scripts/lib/bundle.mjs')).href
    )) as {
      bundleIsCurrent: () => boolean;
      provideBundle: () => Promise<{ why: string } | undefined>;
    };
    const missing = bundleIsCurrent() ? undefined : await provideBundle();
    if (missing !== undefined) throw new Error(missing.why);
  }, 60_000);

export type RunGiven = {
  stdin?: string | null;
  cwd?: string;
  env?: Record<string, string>;
  onErr?: (text: string) => void;
};
export type Programs = {
  home: string;
  env: Record<string, string>;
  /** Runs `berth` to its end. `stdin: null`: standard input is closed. */
  run(argv: readonly string[], given?: RunGiven): Promise<Result>;
  start(argv: readonly string[], given?: RunGiven): { child: ChildProcess; ended: Promise<Result> };
  /** Runs `berth` in a terminal. */
  terminal(argv: readonly string[], given?: TerminalGiven): Terminal;
  /** Runs a line of a shell in a terminal. `berth` is on its PATH. */
  shell(line: string, given?: TerminalGiven): Terminal;
};
export type TerminalGiven = { columns?: number; cwd?: string; env?: Record<string, string> };
export type Terminal = {
  type(text: string): void;
  /** Everything that was shown, without escape sequences. */
  text(): string;
  raw(): string;
  /** Waits until the terminal shows the text after what earlier calls waited for. */
  shows(expected: string | RegExp): Promise<void>;
  resize(columns: number): Promise<void>;
  ended: Promise<number>;
};

/** A home folder, a PATH with `berth`, and nothing else from the environment of the tests. */
export function programs(): Programs {
  const home = mkdtempSync(join(tmpdir(), 'berth-programs-'));
  const bin = join(home, '.bin');
  mkdirSync(bin);
  symlinkSync(BERTH, join(bin, 'berth'));
  afterAll(() => rmSync(home, { recursive: true, force: true }));
  const env = {
    PATH: [bin, dirname(process.execPath), process.env['PATH'] ?? ''].join(delimiter),
    HOME: home,
    LANG: 'C.UTF-8',
  };

  function start(
    argv: readonly string[],
    given: RunGiven = {},
  ): { child: ChildProcess; ended: Promise<Result> } {
    const child = spawn(process.execPath, [BERTH, ...argv], {
      cwd: given.cwd ?? home,
      env: { ...env, ...given.env },
      stdio: [given.stdin === null ? 'ignore' : 'pipe', 'pipe', 'pipe'],
    });
    let [out, err] = ['', ''];
    child.stdout?.setEncoding('utf8').on('data', (text: string) => (out += text));
    child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      err += text;
      given.onErr?.(err);
    });
    child.stdin?.on('error', () => undefined).end(given.stdin ?? '');
    const ended = new Promise<Result>((resolve, reject) => {
      child.once('error', reject);
      child.once('close', (code) => resolve({ code: code ?? -1, out, err }));
    });
    return { child, ended };
  }

  function shell(line: string, given: TerminalGiven = {}): Terminal {
    const device = join(mkdtempSync(join(home, '.tty-')), 'name');
    const child = spawn(
      SCRIPT,
      ['-qefc', `tty > ${device}; stty cols ${given.columns ?? 80} rows 24; ${line}`, '/dev/null'],
      {
        cwd: given.cwd ?? home,
        env: { ...env, TERM: 'xterm', SHELL: '/bin/sh', ...given.env },
        stdio: ['pipe', 'pipe', 'inherit'],
      },
    );
    onTestFinished(() => void child.kill('SIGKILL'));
    let raw = '';
    let from = 0;
    child.stdout.setEncoding('utf8').on('data', (text: string) => (raw += text));
    child.stdin.on('error', () => undefined);
    const text = (): string =>
      stripVTControlCharacters(raw).replaceAll('\r', '').replaceAll('\u0007', '');
    return {
      type: (typed) => void child.stdin.write(typed),
      text,
      raw: () => raw,
      async shows(expected) {
        const at = await waitFor(
          `the terminal shows ${expected}`,
          () => {
            const rest = text().slice(from);
            const match =
              typeof expected === 'string'
                ? rest.indexOf(expected)
                : (expected.exec(rest)?.index ?? -1);
            return match < 0 ? undefined : match + 1;
          },
          { deadlineMs: DEADLINE_MS },
        ).catch((error: unknown) => {
          throw new Error(`${messageOf(error)}; it shows:\n${text().slice(from)}`, {
            cause: error,
          });
        });
        from += at;
      },
      resize: async (columns) =>
        void (await promisify(execFile)('stty', [
          '-F',
          readFileSync(device, 'utf8').trim(),
          'cols',
          String(columns),
        ])),
      ended: new Promise((resolve) => child.once('close', (code) => resolve(code ?? -1))),
    };
  }
  const quoted = (word: string): string => `'${word.replaceAll("'", String.raw`'\''`)}'`;
  return {
    home,
    env,
    run: (argv, given) => start(argv, given).ended,
    start,
    shell,
    terminal: (argv, given) =>
      shell(`exec ${[process.execPath, BERTH, ...argv].map(quoted).join(' ')}`, given),
  };
}
