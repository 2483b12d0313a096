/**
 * Sends a task's log lines in batches while it runs. The work never waits for it: lines beyond the buffer push out the
 * oldest unsent ones, and a line says how many. A batch keeps its number and its lines until it was taken, so that one
 * sent twice is stored once.
 *
 * idle -> (push) waiting FLUSH_MS -> sending -> waiting or idle; any -> closed (lease lost, or everything was sent).
 */
import type { LogLineIn } from '@berth/wire/task';
import { terminalText } from './terminal-text.ts';

export type SendLines = (first: number, lines: LogLineIn[]) => Promise<void>;
export type LogShipper = {
  push(line: LogLineIn): void;
  /** Sends what is left. Resolves when it is taken, refused for good, or the signal aborts. */
  flush(signal: AbortSignal): Promise<void>;
};
export type LogShipperOptions = {
  /** Retries by itself; rejects only when the lines will never be taken (they are then dropped). */
  send: SendLines;
  onDropped: (error: unknown) => void;
  flushMs?: number;
  maxLines?: number;
  now?: () => Date;
};

/** Of the wire's limits (1000 lines, 16,384 characters, 1 MiB a body) with room to spare. */
const BATCH_LINES = 500;
const BATCH_CHARS = 400_000;
const MAX_TEXT = 16_000;
const MAX_STEP = 300;

export function createLogShipper({
  send,
  onDropped,
  flushMs = 200,
  maxLines = 5_000,
  now = () => new Date(),
}: LogShipperOptions): LogShipper {
  const buffer: LogLineIn[] = [];
  let leftOut = 0;
  let next = 0;
  let timer: NodeJS.Timeout | undefined;
  let sending: Promise<void> | null = null;

  function takeBatch(): LogLineIn[] {
    const batch: LogLineIn[] = [];
    if (leftOut > 0)
      batch.push({
        at: now().toISOString(),
        stream: 'system',
        step: null,
        text: `… ${leftOut} lines were left out: they came faster than they could be sent`,
      });
    leftOut = 0;
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
      // Pushed after the last look and before this one: nobody has set a timer for it.
      if (buffer.length > 0) timer ??= setTimeout(() => void go(), flushMs);
    });
    return sending;
  }

  return {
    push(line) {
      buffer.push({
        ...line,
        at: line.at ?? now().toISOString(),
        text: clean(line.text, MAX_TEXT, true),
        ...(line.step === null || line.step === undefined ? {} : { step: clean(line.step, MAX_STEP, false) }),
      });
      if (buffer.length > maxLines) {
        buffer.shift();
        leftOut += 1;
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

/** Half a character is none, and a cut escape sequence is taken out with the rest of its kind. */
function clean(text: string, max: number, colours: boolean): string {
  const cut = text.length > max ? `${text.slice(0, max - 20)}… (line cut)` : text;
  // A database stores no NUL.
  return terminalText(cut.replaceAll('\0', '\u{FFFD}'), { colours }).toWellFormed();
}
