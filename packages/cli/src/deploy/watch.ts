/**
 * Reads a deployment by long polling until it is settled. If the control plane does not answer,
 * prints a note, retries, and gives up after a deadline. The deployment itself continues.
 */
import { defined } from '@berth/kit/defined';
import { ApiError, type CallResult } from '@berth/wire/client';
import type { Deployment } from '@berth/wire/deployment';
import { backoff } from '@berth/kit/backoff';
import type { Cli } from '../cli.ts';
import { CliError, EXIT, isAway } from '../problem.ts';

const HOLD_SECONDS = 25;
/**
 * An unchanged answer that arrives sooner than this was not held, because the server has too many
 * long polls: pause before the next request.
 */
const LEAST_HOLD_MS = 1_000;
const AWAY = { min: 500, max: 5_000 };

export type WatchOptions = {
  /** Called with each new state, also with the first one. */
  onChange(deployment: Deployment): void;
  /** Returns whether to stop reading. */
  isDone(deployment: Deployment): boolean;
  /** Prints a sentence about the connection. */
  note(text: string): void;
  /** Maximum time in ms without an answer of the control plane. */
  awayMs: number;
  signal?: AbortSignal;
};

/** Throws CliError `unreachable` (exit 3) after `awayMs`, or the abort reason of `signal`. */
export async function watchDeployment(
  cli: Cli,
  id: string,
  options: WatchOptions,
): Promise<Deployment> {
  const { io } = cli;
  let etag: string | null = null;
  let awaySince: number | null = null;
  let tries = 0;
  for (;;) {
    options.signal?.throwIfAborted();
    const asked = io.monotonic();
    try {
      const result: CallResult<'getDeployment'> = await cli.client().exchange('getDeployment', {
        params: { id },
        // Without an ETag, the server answers at once.
        query: etag === null ? {} : { wait: HOLD_SECONDS },
        headers: etag === null ? {} : { 'if-none-match': etag },
        timeoutMs: (HOLD_SECONDS + 15) * 1000,
        ...defined({ signal: options.signal }),
      });
      const { answer } = result;
      if (awaySince !== null)
        options.note(
          'the control plane answers again after ' +
            `${Math.round((io.monotonic() - awaySince) / 1000)} s`,
        );
      awaySince = null;
      tries = 0;
      if (answer !== null) {
        options.onChange(answer);
        if (options.isDone(answer)) return answer;
      } else if (io.monotonic() - asked < LEAST_HOLD_MS)
        await io.sleep(LEAST_HOLD_MS, options.signal);
      etag = result.etag;
    } catch (error) {
      options.signal?.throwIfAborted();
      if (!isAway(error) && !isLimited(error)) throw error;
      if (awaySince === null) {
        awaySince = asked;
        options.note(
          `the control plane does not answer (${(error as Error).message}); trying again`,
        );
      }
      if (io.monotonic() - awaySince >= options.awayMs)
        throw new CliError(
          EXIT.unreachable,
          'unreachable',
          `the control plane has not answered for ${Math.round(options.awayMs / 1000)} s; the ` +
            `deployment ${id} does not depend on this command`,
          {
            next: `berth deployment watch ${id}`,
            cause: error,
          },
        );
      await io.sleep(backoff(tries++, AWAY), options.signal);
    }
  }
}

const isLimited = (error: unknown): boolean => error instanceof ApiError && error.status === 429;
