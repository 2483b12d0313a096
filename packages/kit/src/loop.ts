/**
 * A loop that runs one thing again and again, never twice at once.
 * idle -> running (period over, or `wake()`); running -> idle (done) or -> running at once (woken meanwhile); any -> stopped.
 */
import type { Logger } from './log.ts';

export type LoopSpec = {
  name: string;
  /** Milliseconds between the end of one run and the start of the next, unless woken. */
  periodMs: number;
  run: (signal: AbortSignal) => Promise<void>;
};
export type Loop = {
  name: string;
  /** Run again as soon as possible; during a run: once more after it. */
  wake(): void;
  /** Ends after the run under way, which sees its signal aborted. */
  stop(): Promise<void>;
  /** When the last run without an error ended, and the error of the last one that had one since. */
  status(): { lastOkAt: number | null; lastError: string | null };
};

export function startLoop(spec: LoopSpec, log: Logger): Loop {
  const abort = new AbortController();
  let timer: NodeJS.Timeout | undefined;
  let running: Promise<void> | null = null;
  let again = false;
  let lastOkAt: number | null = null;
  let lastError: string | null = null;

  const once = async (): Promise<void> => {
    try {
      await spec.run(abort.signal);
      lastOkAt = Date.now();
      lastError = null;
    } catch (error) {
      if (abort.signal.aborted) return;
      lastError = error instanceof Error ? error.message : String(error);
      log.error({ err: error, loop: spec.name }, 'loop run failed; it is tried again');
    }
  };
  const go = (): void => {
    clearTimeout(timer);
    if (abort.signal.aborted) return;
    if (running !== null) {
      again = true;
      return;
    }
    running = once().finally(() => {
      running = null;
      if (abort.signal.aborted) return;
      // A failing run that is woken all the time must not spin: after an error the period is waited out (see wake, too).
      const next = again && lastError === null ? 0 : spec.periodMs;
      again = false;
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
