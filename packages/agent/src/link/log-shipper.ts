/**
 * Sends a task's log lines in batches while the task runs. A batch keeps its number and its lines
 * until it was accepted, so the control plane stores a batch once even if it is sent twice.
 *
 * idle -> (push) waiting for flushMs -> sending -> waiting or idle; any -> closed (lease lost, or
 * all lines sent).
 *
 * Lines wait in memory. When they are many, `room` lets further output wait (build/build-spool.ts),
 * so that none is lost. A control plane that does not answer must not stop a build: output waits at
 * most 30 s for an accepted batch, and 5 minutes in all. Afterwards each new line beyond the bounds
 * pushes out the oldest one, and a line in its place says how many and why.
 */
import { defined } from '@berth/kit/defined';
import { MAX_LINE } from '@berth/kit/lines';
import type { LogLineIn } from '@berth/wire/task';
import { createShownText } from '../secrets/shown-text.ts';

export type SendLines = (first: number, lines: LogLineIn[]) => Promise<void>;
export type LogShipper = {
  push(line: LogLineIn): void;
  /** Returns a promise while too many lines wait, and null if there is room. */
  room(): Promise<void> | null;
  /**
   * Sends the remaining lines. Resolves when they are accepted or refused for good, when the signal
   * aborts, or when no batch was accepted for too long.
   */
  flush(signal: AbortSignal): Promise<void>;
};
export type LogShipperOptions = {
  /** Retries by itself. Rejects only if the lines will never be accepted; they are then dropped. */
  send: SendLines;
  onDropped: (error: unknown) => void;
  /** Removes secrets from texts. */
  redact?: (text: string) => string;
  flushMs?: number;
  bounds?: Bounds;
  now?: () => Date;
};
/** `lines`, `chars`: what may wait. `stallMs`, `waitMs`: how long a program waits. */
export type Bounds = { lines: number; chars: number; stallMs: number; waitMs: number };
/** One message of the builder has up to 1 MiB of output, which arrives at once. */
const BOUNDS: Bounds = {
  lines: 200_000,
  chars: 32 * 1024 * 1024,
  stallMs: 30_000,
  waitMs: 300_000,
};

/** Parts of the bounds: a program waits from HIGH on, until LOW. */
const HIGH = 1 / 4;
const LOW = 1 / 8;

/** Below the limits of the agent API: 1000 lines, 16,384 characters in a line, 1 MiB in a body. */
const BATCH_LINES = 500;
const BATCH_CHARS = 400_000;
const MAX_STEP = 300;
/** Characters of memory that a line costs besides its text. */
const LINE_CHARS = 100;
/** `flush` gives up when no batch was accepted for this long. */
const FLUSH_STALL_MS = 15_000;

export function createLogShipper({
  send,
  onDropped,
  flushMs = 200,
  bounds = BOUNDS,
  redact = (text) => text,
  now = () => new Date(),
}: LogShipperOptions): LogShipper {
  let buffer: LogLineIn[] = [];
  /** Lines before this index are sent or dropped. */
  let head = 0;
  let chars = 0;
  let dropped = 0;
  let next = 0;
  let timer: NodeJS.Timeout | undefined;
  let sending: Promise<void> | null = null;
  const hide = createShownText(redact);
  const isEmpty = (): boolean => head === buffer.length;

  let acceptedAt = performance.now();
  let waitedMs = 0;
  let waiting: { promise: Promise<void>; end: () => void } | null = null;

  const sizeOf = (line: LogLineIn): number => line.text.length + LINE_CHARS;
  function shift(): LogLineIn | undefined {
    const line = buffer[head];
    if (line === undefined) return undefined;
    chars -= sizeOf(line);
    head += 1;
    if (head > 1_000 && head * 2 > buffer.length) {
      buffer = buffer.slice(head);
      head = 0;
    }
    return line;
  }
  const isOver = (part: number): boolean =>
    buffer.length - head > bounds.lines * part || chars > bounds.chars * part;

  function takeBatch(): LogLineIn[] {
    const batch: LogLineIn[] = [];
    if (dropped > 0)
      batch.push({
        at: now().toISOString(),
        stream: 'system',
        step: null,
        text:
          `… ${dropped} lines are missing here: the agent kept them until its buffer was full, ` +
          'and the control plane took them too slowly or not at all',
      });
    dropped = 0;
    let size = 0;
    while (!isEmpty() && batch.length < BATCH_LINES && size < BATCH_CHARS) {
      const line = shift();
      if (line === undefined) break;
      size += sizeOf(line);
      batch.push(line);
    }
    return batch;
  }
  async function sendAll(): Promise<void> {
    // Before, there was nothing to accept.
    acceptedAt = performance.now();
    while (!isEmpty()) {
      const batch = takeBatch();
      const first = next;
      next += batch.length;
      try {
        await send(first, batch);
      } catch (error) {
        onDropped(error);
      }
      acceptedAt = performance.now();
      if (!isOver(LOW)) waiting?.end();
    }
  }
  function go(): Promise<void> {
    clearTimeout(timer);
    timer = undefined;
    sending ??= sendAll().finally(() => {
      sending = null;
      // Lines that were pushed between the last check and here have no timer yet.
      if (!isEmpty()) timer ??= setTimeout(() => void go(), flushMs);
    });
    return sending;
  }

  /** Begins a wait that ends when there is room, or when the patience is over. */
  function wait(): { promise: Promise<void>; end: () => void } {
    const { promise, resolve } = Promise.withResolvers<void>();
    const began = performance.now();
    const look = setInterval(() => {
      if (
        performance.now() - acceptedAt > bounds.stallMs ||
        waitedMs + performance.now() - began > bounds.waitMs
      )
        end();
    }, 100);
    const end = (): void => {
      clearInterval(look);
      if (waiting?.promise === promise) {
        waitedMs += performance.now() - began;
        waiting = null;
      }
      resolve();
    };
    return { promise, end };
  }

  return {
    push(line) {
      const shown: LogLineIn = {
        ...line,
        at: line.at ?? now().toISOString(),
        text: hide(line.text, MAX_LINE, true),
        ...defined({
          step:
            line.step === null || line.step === undefined
              ? undefined
              : hide(line.step, MAX_STEP, false),
        }),
      };
      buffer.push(shown);
      chars += sizeOf(shown);
      while (isOver(1) && buffer.length - head > 1) {
        shift();
        dropped += 1;
      }
      if (sending === null) timer ??= setTimeout(() => void go(), flushMs);
    },
    room() {
      if (!isOver(HIGH) || waitedMs >= bounds.waitMs) return null;
      // It does not answer: the lines since its last answer have waited long enough.
      if (sending !== null && performance.now() - acceptedAt > bounds.stallMs) return null;
      void go();
      waiting ??= wait();
      return waiting.promise;
    },
    async flush(signal) {
      const began = performance.now();
      const aborted = new Promise<void>((resolve) =>
        signal.aborted
          ? resolve()
          : signal.addEventListener('abort', () => resolve(), { once: true }),
      );
      const { promise: stalled, resolve: giveUp } = Promise.withResolvers<void>();
      const look = setInterval(() => {
        if (performance.now() - Math.max(began, acceptedAt) > FLUSH_STALL_MS) giveUp();
      }, 250);
      const sent = (async () => {
        while (!isEmpty() || sending !== null) await go();
      })();
      await Promise.race([sent, aborted, stalled]);
      clearInterval(look);
      clearTimeout(timer);
    },
  };
}
