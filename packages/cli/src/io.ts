/** The terminal, files and clock of one run. Tests replace them. */
import type { CliConfig } from './config.ts';
import type { Pipes } from './exec/pipes.ts';

export type Io = {
  config: CliConfig;
  cwd: string;
  /** Writes the result of the command to stdout. */
  out(text: string): void;
  /** Writes all other text to stderr. */
  err(text: string): void;
  /** True for each of stdin, stdout and stderr that is a terminal. */
  terminal: { in: boolean; out: boolean; err: boolean };
  /** Returns the width of the terminal at stderr. */
  columns(): number;
  /** Reads all of stdin, up to `limit` bytes. */
  readStdin(limit: number): Promise<string>;
  /** The standard streams as bytes. */
  pipes: Pipes;
  /** Aborts when a person presses Ctrl-C. */
  interrupted: AbortSignal;
  now(): number;
  /** Returns a monotonic time in ms, for durations. */
  monotonic(): number;
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
};

/** Returns whether stderr can show an animation: a terminal that is not dumb, without NO_COLOR. */
export const canAnimate = (io: Io): boolean => io.terminal.err && io.config.canDraw;
/** Returns whether a person can answer questions. */
export const canAsk = (io: Io): boolean => io.terminal.in && io.terminal.err && !io.config.isDumb;
