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
  run: LoopRun;
};
/**
 * One run. Throws if it failed. Returns a problem if it did its work in part: the loop counts as
 * failing, and goes on without a pause.
 */
export type LoopRun = (signal: AbortSignal) => Promise<string | undefined | void>;
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
   * Returns the end of the last successful run in ms, and the error or problem of the last run.
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
  let hasThrown = false;

  const once = async (): Promise<void> => {
    try {
      lastError = (await spec.run(abort.signal)) ?? null;
      if (lastError === null) lastOkAt = Date.now();
      hasThrown = false;
    } catch (error) {
      if (abort.signal.aborted) return;
      hasThrown = true;
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
      const next = wakePending && !hasThrown ? 0 : spec.periodMs;
      wakePending = false;
      if (next === 0) setImmediate(go);
      else timer = setTimeout(go, next);
    });
  };
  timer = setTimeout(go, 0);

  return {
    name: spec.name,
    wake() {
      if (running === null && hasThrown) return;
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
