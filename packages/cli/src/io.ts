/** The terminal, files and clock of one run. Tests pass their own. */
import type { CliConfig } from './config.ts';

export type Io = {
  config: CliConfig;
  cwd: string;
  /** Writes data to stdout. */
  out(text: string): void;
  /** Writes everything else to stderr. */
  err(text: string): void;
  /** Whether stdin, stdout and stderr are terminals. */
  terminal: { in: boolean; out: boolean; err: boolean };
  /** Width of the terminal at stderr. */
  columns(): number;
  /** Reads all of stdin, at most `limit` bytes. */
  readStdin(limit: number): Promise<string>;
  /** Aborts when a person presses Ctrl-C. */
  interrupted: AbortSignal;
  now(): number;
  /** Clock for durations in ms, which never jumps. */
  monotonic(): number;
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
};

/** True if stderr can show a picture that moves: a terminal that is not dumb, without NO_COLOR. */
export const canAnimate = (io: Io): boolean => io.terminal.err && io.config.canDraw;
/** True if a person can answer questions. */
export const canAsk = (io: Io): boolean => io.terminal.in && io.terminal.err && !io.config.isDumb;
