/**
 * How far the copies of a task are, sent to the control plane: the newest state only, at most once a second, never twice at
 * once. It is for people who watch: what cannot be sent is dropped.
 */
import type { CopyProgress } from '@berth/wire/dataset';

export type ProgressSender = {
  push(datasets: readonly CopyProgress[]): void;
  /** Sends what is not sent yet, without waiting for its second. */
  flush(): Promise<void>;
  /** Nothing is sent after it. */
  stop(): void;
};
type Send = (datasets: CopyProgress[], signal: AbortSignal) => Promise<unknown>;

const EVERY_MS = 1_000;
const SEND_MS = 3_000;
/** The rows that one message may have (wire/dataset.ts). */
const MOST = 100;

export function createProgressSender(send: Send, everyMs = EVERY_MS): ProgressSender {
  const ending = new AbortController();
  let newest: readonly CopyProgress[] | null = null;
  let timer: NodeJS.Timeout | undefined;
  let sending: Promise<void> | null = null;
  let sentAt = -Infinity;

  function go(): void {
    clearTimeout(timer);
    timer = undefined;
    if (newest === null || sending !== null || ending.signal.aborted) return;
    const datasets = newest.slice(0, MOST);
    newest = null;
    sentAt = performance.now();
    sending = send(datasets, AbortSignal.any([ending.signal, AbortSignal.timeout(SEND_MS)])).then(over, over);
  }
  function over(): void {
    sending = null;
    plan();
  }
  function plan(): void {
    if (newest === null || sending !== null || ending.signal.aborted) return;
    timer ??= setTimeout(go, Math.max(0, sentAt + everyMs - performance.now()));
  }
  return {
    push(datasets) {
      newest = datasets;
      plan();
    },
    async flush() {
      await sending;
      go();
      await sending;
    },
    stop() {
      clearTimeout(timer);
      ending.abort(new Error('the task is over'));
    },
  };
}
