/**
 * Sends a task's log lines in batches while the task runs. The task never waits for it: when the buffer is full, each new line pushes
 * out the oldest unsent line, and a line tells how many were dropped. A batch keeps its number and its lines until it was accepted, so
 * the control plane stores a batch once even if it is sent twice.
 *
 * idle -> (push) waiting for flushMs -> sending -> waiting or idle; any -> closed (lease lost, or all lines sent).
 */
import type { LogLineIn } from '@berth/wire/task';
import { createShownText } from './shown-text.ts';

export type SendLines = (first: number, lines: LogLineIn[]) => Promise<void>;
export type LogShipper = {
  push(line: LogLineIn): void;
  /** Sends the remaining lines. Resolves when they are accepted or refused for good, or when the signal aborts. */
  flush(signal: AbortSignal): Promise<void>;
};
export type LogShipperOptions = {
  /** Retries by itself. Rejects only if the lines will never be accepted; they are then dropped. */
  send: SendLines;
  onDropped: (error: unknown) => void;
  /** Removes secrets from texts. */
  redact?: (text: string) => string;
  flushMs?: number;
  maxLines?: number;
  now?: () => Date;
};

/** Below the limits of the agent API: 1000 lines, 16,384 characters in a line, 1 MiB in a body. */
const BATCH_LINES = 500;
const BATCH_CHARS = 400_000;
const MAX_TEXT = 16_000;
const MAX_STEP = 300;

export function createLogShipper({
  send,
  onDropped,
  flushMs = 200,
  maxLines = 5_000,
  redact = (text) => text,
  now = () => new Date(),
}: LogShipperOptions): LogShipper {
  const buffer: LogLineIn[] = [];
  let dropped = 0;
  let next = 0;
  let timer: NodeJS.Timeout | undefined;
  let sending: Promise<void> | null = null;
  const hide = createShownText(redact);

  function takeBatch(): LogLineIn[] {
    const batch: LogLineIn[] = [];
    if (dropped > 0)
      batch.push({
        at: now().toISOString(),
        stream: 'system',
        step: null,
        text: `… ${dropped} lines were dropped: the output was faster than the connection to the control plane`,
      });
    dropped = 0;
    let chars = 0;
    while (buffer.length > 0 && batch.length < BATCH_LINES && chars < BATCH_CHARS) {
      const line = buffer.shift();
      if (line === undefined) break;
      chars += line.text.length + 100;
      batch.push(line);
    }
    return batch;
  }
  async function sendAll(): Promise<void> {
    while (buffer.length > 0) {
      const batch = takeBatch();
      const first = next;
      next += batch.length;
      try {
        await send(first, batch);
      } catch (error) {
        onDropped(error);
      }
    }
  }
  function go(): Promise<void> {
    clearTimeout(timer);
    timer = undefined;
    sending ??= sendAll().finally(() => {
      sending = null;
      // Lines that were pushed between the last check and here have no timer yet.
      if (buffer.length > 0) timer ??= setTimeout(() => void go(), flushMs);
    });
    return sending;
  }

  return {
    push(line) {
      buffer.push({
        ...line,
        at: line.at ?? now().toISOString(),
        text: hide(line.text, MAX_TEXT, true),
        ...(line.step === null || line.step === undefined ? {} : { step: hide(line.step, MAX_STEP, false) }),
      });
      if (buffer.length > maxLines) {
        buffer.shift();
        dropped += 1;
      }
      if (sending === null) timer ??= setTimeout(() => void go(), flushMs);
    },
    async flush(signal) {
      const aborted = new Promise<void>((resolve) =>
        signal.aborted ? resolve() : signal.addEventListener('abort', () => resolve(), { once: true }),
      );
      const sent = (async () => {
        while (buffer.length > 0 || sending !== null) await go();
      })();
      await Promise.race([sent, aborted]);
      clearTimeout(timer);
    },
  };
}
