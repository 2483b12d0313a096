/** Sends a request that creates something, once, also if the control plane restarts meanwhile. */
import { backoff } from '@berth/kit/backoff';
import type { Cli } from './cli.ts';
import { isAway } from './problem.ts';

const PAUSE = { min: 500, max: 4_000 };
/** Maximum number of requests. Their pauses give a control plane at least 5 s to restart. */
const MOST_TRIES = 6;

/**
 * Repeats the request while the control plane does not answer. The Idempotency-Key is the same each
 * time, so a request whose answer was lost creates nothing twice.
 */
export async function sendOnce<T>(
  cli: Cli,
  send: (headers: Record<string, string>) => Promise<T>,
): Promise<T> {
  const headers = { 'idempotency-key': crypto.randomUUID() };
  for (let tries = 1; ; tries++)
    try {
      return await send(headers);
    } catch (error) {
      if (!isAway(error) || tries === MOST_TRIES) throw error;
      if (tries === 2) cli.say('the control plane does not answer; trying again');
      const { interrupted, sleep } = cli.io;
      await sleep(backoff(tries - 1, PAUSE), interrupted).catch(() => undefined);
      if (interrupted.aborted) throw error;
    }
}
