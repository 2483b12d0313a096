/**
 * Repeats one function and never runs it twice at the same time.
 *
 *   idle -> running      the period elapsed, or `wake()` was called
 *   running -> idle      the run ended
 *   running -> running   the run ended, and `wake()` was called during the run
 *   any -> stopped       `stop()` was called
 */
import type { Logger } from './log.ts';
import { messageOf } from './message-of.ts';

export type LoopSpec = {
  name: string;
  /**
   * Pause in ms between the end of a run and the start of the next one, unless `wake` is called.
   */
  periodMs: number;
  run: (signal: AbortSignal) => Promise<void>;
};
export type Loop = {
  name: string;
  /**
   * Starts a run as soon as possible; during a run, schedules one more run. Does nothing after a
   * failed run, because the loop then waits for its period.
   */
  wake(): void;
  /** Aborts the signal of the current run and resolves when that run has ended. */
  stop(): Promise<void>;
  /**
   * Returns the end of the last successful run in ms, and the error of the last run, if it failed.
   */
  status(): { lastOkAt: number | null; lastError: string | null };
};

export function startLoop(spec: LoopSpec, log: Logger): Loop {
  const abort = new AbortController();
  let timer: NodeJS.Timeout | undefined;
  let running: Promise<void> | null = null;
  let wakePending = false;
  let lastOkAt: number | null = null;
  let lastError: string | null = null;

  const once = async (): Promise<void> => {
    try {
      await spec.run(abort.signal);
      lastOkAt = Date.now();
      lastError = null;
    } catch (error) {
      if (abort.signal.aborted) return;
      lastError = messageOf(error);
      log.error({ err: error, loop: spec.name }, 'loop run failed; will retry');
    }
  };
  const go = (): void => {
    clearTimeout(timer);
    if (abort.signal.aborted) return;
    if (running !== null) {
      wakePending = true;
      return;
    }
    running = once().finally(() => {
      running = null;
      if (abort.signal.aborted) return;
      // After an error, wait for the full period even if woken, so that a failing run does not
      // repeat without a pause. `wake` does the same.
      const next = wakePending && lastError === null ? 0 : spec.periodMs;
      wakePending = false;
      if (next === 0) setImmediate(go);
      else timer = setTimeout(go, next);
    });
  };
  timer = setTimeout(go, 0);

  return {
    name: spec.name,
    wake() {
      if (running === null && lastError !== null) return;
      go();
    },
    status: () => ({ lastOkAt, lastError }),
    async stop() {
      abort.abort();
      clearTimeout(timer);
      await running;
    },
  };
}
