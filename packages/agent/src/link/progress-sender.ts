/**
 * Sends the progress of a task to the control plane: only the newest state, at most once per
 * second, one request at a time. A progress state that cannot be sent is dropped, because it is
 * only displayed. Facts of a build are sent again until they are accepted.
 */
import type { CopyProgress } from '@berth/wire/dataset';
import type { TaskFacts } from '@berth/wire/task';

export type ProgressSender = {
  push(datasets: readonly CopyProgress[]): void;
  /** Adds facts about the task. */
  learned(facts: TaskFacts): void;
  /** Sends the newest state now, unless it was already sent. */
  flush(): Promise<void>;
  /** Stops permanently: later states are not sent. */
  stop(): void;
};
/** Sends the copies, and the facts that were not accepted yet; undefined if all were. */
type Send = (
  datasets: CopyProgress[],
  signal: AbortSignal,
  learned: TaskFacts | undefined,
) => Promise<unknown>;

const SEND_EVERY_MS = 1_000;
const SEND_TIMEOUT_MS = 3_000;
/** Maximum number of rows in one message (wire/dataset.ts). */
const MAX_ROWS = 100;

export function createProgressSender(send: Send, everyMs = SEND_EVERY_MS): ProgressSender {
  const ending = new AbortController();
  let newest: readonly CopyProgress[] | null = null;
  let facts: TaskFacts | undefined;
  let timer: NodeJS.Timeout | undefined;
  let sending: Promise<void> | null = null;
  let sentAt = -Infinity;

  function sendNow(): void {
    clearTimeout(timer);
    timer = undefined;
    if (isEmpty() || sending !== null || ending.signal.aborted) return;
    const datasets = (newest ?? []).slice(0, MAX_ROWS);
    const learned = facts;
    newest = null;
    facts = undefined;
    sentAt = performance.now();
    const signal = AbortSignal.any([ending.signal, AbortSignal.timeout(SEND_TIMEOUT_MS)]);
    sending = send(datasets, signal, learned).then(onSent, () => {
      if (learned !== undefined) facts = { ...learned, ...facts };
      onSent();
    });
  }
  const isEmpty = (): boolean => newest === null && facts === undefined;
  function onSent(): void {
    sending = null;
    schedule();
  }
  function schedule(): void {
    if (isEmpty() || sending !== null || ending.signal.aborted) return;
    timer ??= setTimeout(sendNow, Math.max(0, sentAt + everyMs - performance.now()));
  }
  return {
    push(datasets) {
      newest = datasets;
      schedule();
    },
    learned(more) {
      facts = { ...facts, ...more };
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
