/** Repeats a step that talks to the control plane. */
import { setTimeout as pause } from 'node:timers/promises';
import { backoff } from '@berth/kit/backoff';
import type { Logger } from '@berth/kit/log';
import { messageOf } from '@berth/kit/message-of';

const RETRY = { min: 100, max: 2_000 };

export type RepeatOptions = {
  log: Logger;
  signal: AbortSignal;
  /** Called after each step with the error's message, or with null after a success. */
  onResult?: (error: string | null) => void;
};

/**
 * Runs `step` until `signal` aborts. Each step returns the pause in ms until the next step. After
 * errors, the pause grows (backoff).
 */
export async function repeat(
  step: () => Promise<number>,
  { log, signal, onResult }: RepeatOptions,
): Promise<void> {
  for (let failures = 0; !signal.aborted; ) {
    let pauseMs: number;
    try {
      pauseMs = await step();
      if (failures > 0) log.info('the control plane answers again');
      failures = 0;
      onResult?.(null);
    } catch (error) {
      if (signal.aborted) return;
      onResult?.(messageOf(error));
      pauseMs = backoff(failures, RETRY);
      failures += 1;
      // Log only the first failure, so that a long outage does not fill the log.
      if (failures === 1)
        log.warn({ err: error }, 'the control plane does not answer; the last policy stays in use');
    }
    await pause(pauseMs, undefined, { signal }).catch((error: unknown) => {
      if (!signal.aborted) throw error;
    });
  }
}
