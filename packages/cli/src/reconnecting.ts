/** Keeps a stream of the control plane open across lost connections. */
import { backoff } from '@berth/kit/backoff';
import type { Cli } from './cli.ts';
import { CliError, EXIT, isAway } from './problem.ts';

const PAUSE = { min: 500, max: 5_000 };
/** If the control plane does not answer for longer than this, the command ends. */
const MAX_AWAY_MS = 120_000;

/**
 * Calls `connect` repeatedly until Ctrl-C, with a pause between calls. `connect` reads one
 * connection and calls `answered` for each event. Throws if the control plane stays unreachable,
 * and rethrows other errors of `connect`.
 */
export async function reconnecting(
  cli: Cli,
  connect: (answered: () => void, signal: AbortSignal) => Promise<void>,
): Promise<void> {
  const signal = cli.io.interrupted;
  let tries = 0;
  let awaySince: number | null = null;
  const answered = (): void => {
    tries = 0;
    awaySince = null;
  };
  while (!signal.aborted) {
    try {
      await connect(answered, signal);
    } catch (error) {
      if (!isAway(error)) throw error;
      awaySince ??= cli.io.monotonic();
      if (cli.io.monotonic() - awaySince > MAX_AWAY_MS) throw awayTooLong(error);
      if (tries === 0) cli.say('the control plane does not answer; trying again');
    }
    if (!signal.aborted) await cli.io.sleep(backoff(tries++, PAUSE), signal).catch(() => undefined);
  }
}

const awayTooLong = (cause: unknown): CliError =>
  new CliError(
    EXIT.unreachable,
    'unreachable',
    `the control plane has not answered for ${MAX_AWAY_MS / 1000} s`,
    { cause },
  );
