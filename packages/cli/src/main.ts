/** Runs the command line as a process. `bin/berth` calls `main`. */
import { setTimeout as sleep } from 'node:timers/promises';
import { isatty } from 'node:tty';
import { settingsOrExit } from '@berth/kit/config';
import { readConfig } from './config.ts';
import { processPipes } from './exec/pipes.ts';
import type { Io } from './io.ts';
import { EXIT, usage } from './problem.ts';
import { run } from './run.ts';
import { renewalsEnded } from './session/renewals.ts';

/** Time in ms for an interrupted command to print its last sentence. */
const INTERRUPT_MS = 500;

export async function main(argv: readonly string[]): Promise<void> {
  const config = settingsOrExit(readConfig);
  const interrupted = new AbortController();
  // The signal lets the command say which work continues. The timer ends a command that only waits
  // for an answer and would ignore Ctrl-C.
  const leave = (code: number): void => void renewalsEnded().then(() => process.exit(code));
  process.on('SIGINT', () => {
    if (interrupted.signal.aborted) return leave(EXIT.interrupted);
    interrupted.abort(new Error('interrupted'));
    setTimeout(() => leave(EXIT.interrupted), INTERRUPT_MS).unref();
  });
  process.on('SIGTERM', () => leave(143));
  // The terminal was closed.
  process.on('SIGHUP', () => leave(129));
  let hasDrawn = false;
  // Show the cursor again, which is hidden while steps are drawn.
  process.on('exit', () => hasDrawn && process.stderr.write('\u001b[?25h'));
  // EPIPE is a success: a reader such as `head` closed the pipe because it has enough output.
  for (const stream of [process.stdout, process.stderr])
    stream.on('error', (error: NodeJS.ErrnoException) =>
      leave(error.code === 'EPIPE' ? EXIT.done : EXIT.refused),
    );

  const io: Io = {
    config,
    cwd: process.cwd(),
    out: (text) => void process.stdout.write(text),
    err(text) {
      hasDrawn ||= text.includes('\u001b[?25l');
      process.stderr.write(text);
    },
    terminal: { in: isatty(0), out: isatty(1), err: isatty(2) },
    columns: () => process.stderr.columns ?? 80,
    readStdin,
    pipes: processPipes(),
    interrupted: interrupted.signal,
    now: Date.now,
    monotonic: () => performance.now(),
    sleep: (ms, signal) =>
      sleep(ms, undefined, signal === undefined ? {} : { signal }).then(() => undefined),
  };
  process.exitCode = await run(argv, io);
}

async function readStdin(limit: number): Promise<string> {
  const parts: Buffer[] = [];
  let bytes = 0;
  for await (const part of process.stdin as AsyncIterable<Buffer>) {
    bytes += part.length;
    if (bytes > limit) throw usage(`standard input is longer than ${limit / 1024} KiB`);
    parts.push(part);
  }
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(Buffer.concat(parts));
  } catch (error) {
    throw usage(
      'standard input is not text in UTF-8',
      'encode the value, for example: base64 FILE | berth …',
      error,
    );
  }
}
