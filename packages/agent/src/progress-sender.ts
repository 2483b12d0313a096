/**
 * Sends the progress of a task's copies to the control plane: only the newest state, at most once per second, one request at a time.
 * Progress is for people who watch; a report that cannot be sent is dropped.
 */
import type { CopyProgress } from '@berth/wire/dataset';

export type ProgressSender = {
  push(datasets: readonly CopyProgress[]): void;
  /** Sends the newest state at once if it is not sent yet. */
  flush(): Promise<void>;
  /** Stops for good: later states are not sent. */
  stop(): void;
};
type Send = (datasets: CopyProgress[], signal: AbortSignal) => Promise<unknown>;

const SEND_EVERY_MS = 1_000;
const SEND_TIMEOUT_MS = 3_000;
/** The limit of rows in one message (wire/dataset.ts). */
const MAX_ROWS = 100;

export function createProgressSender(send: Send, everyMs = SEND_EVERY_MS): ProgressSender {
  const ending = new AbortController();
  let newest: readonly CopyProgress[] | null = null;
  let timer: NodeJS.Timeout | undefined;
  let sending: Promise<void> | null = null;
  let sentAt = -Infinity;

  function sendNow(): void {
    clearTimeout(timer);
    timer = undefined;
    if (newest === null || sending !== null || ending.signal.aborted) return;
    const datasets = newest.slice(0, MAX_ROWS);
    newest = null;
    sentAt = performance.now();
    sending = send(datasets, AbortSignal.any([ending.signal, AbortSignal.timeout(SEND_TIMEOUT_MS)])).then(onSent, onSent);
  }
  function onSent(): void {
    sending = null;
    schedule();
  }
  function schedule(): void {
    if (newest === null || sending !== null || ending.signal.aborted) return;
    timer ??= setTimeout(sendNow, Math.max(0, sentAt + everyMs - performance.now()));
  }
  return {
    push(datasets) {
      newest = datasets;
      schedule();
    },
    async flush() {
      await sending;
      sendNow();
      await sending;
    },
    stop() {
      clearTimeout(timer);
      ending.abort(new Error('the task has ended'));
    },
  };
}
