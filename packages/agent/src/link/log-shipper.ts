/**
 * Sends a task's log lines in batches while the task runs. A batch keeps its number and lines until
 * it is accepted, so the control plane stores it only once even if it is sent twice.
 *
 *   idle -> (push) waiting for flushMs -> sending -> waiting or idle
 *   any -> closed (lease lost, or all lines sent)
 *
 * Lines wait in memory. When there are many, `room` makes a program wait (build/build-spool.ts), so
 * that no line is lost. A control plane that does not answer must not stop a build: a program waits
 * at most 30 s for an accepted batch, and 5 min in total. After that, each new line beyond the
 * limits replaces the oldest one, and a line in the log says how many lines were dropped and why.
 */
import { defined } from '@berth/kit/defined';
import { MAX_LINE } from '@berth/kit/lines';
import type { LogLineIn } from '@berth/wire/task';
import { createShownText } from '../secrets/shown-text.ts';

export type SendLines = (first: number, lines: LogLineIn[]) => Promise<void>;
export type LogShipper = {
  push(line: LogLineIn): void;
  /** Returns a promise while too many lines wait; null if there is room. */
  room(): Promise<void> | null;
  /**
   * Sends the remaining lines. Resolves when they are accepted or refused for good, when the signal
   * aborts, or when no batch was accepted for too long.
   */
  flush(signal: AbortSignal): Promise<void>;
};
export type LogShipperOptions = {
  /**
   * Sends lines, with its own retries. Rejects only if the lines will never be accepted; they are
   * then dropped.
   */
  send: SendLines;
  onDropped: (error: unknown) => void;
  /** Removes secrets from texts. */
  redact?: (text: string) => string;
  flushMs?: number;
  bounds?: Bounds;
  now?: () => Date;
};
export type Bounds = {
  /** Maximum number of lines that wait in memory. */
  lines: number;
  /** Maximum number of characters that wait in memory. */
  chars: number;
  /** Maximum time in ms that a program waits for an accepted batch. */
  stallMs: number;
  /** Maximum time in ms that a program waits in total. */
  waitMs: number;
};
/** One message of the builder contains up to 1 MiB of output, which arrives at once. */
const BOUNDS: Bounds = {
  lines: 200_000,
  chars: 32 * 1024 * 1024,
  stallMs: 30_000,
  waitMs: 300_000,
};

/** Fractions of the bounds: a program begins to wait at HIGH, and continues at LOW. */
const HIGH = 1 / 4;
const LOW = 1 / 8;

/**
 * These values are below the limits of the agent API: 1,000 lines, 16,384 characters per line, 1
 * MiB per body.
 */
const BATCH_LINES = 500;
const BATCH_CHARS = 400_000;
const MAX_STEP = 300;
/** Memory that a line needs in addition to its text, in characters. */
const LINE_CHARS = 100;
/** `flush` gives up after this time in ms without an accepted batch. */
const FLUSH_STALL_MS = 15_000;

type Wait = { promise: Promise<void>; end: () => void };
/** State of one task's lines on their way to the control plane. */
type Shipping = {
  send: SendLines;
  onDropped: (error: unknown) => void;
  flushMs: number;
  bounds: Bounds;
  now: () => Date;
  hide: ReturnType<typeof createShownText>;
  buffer: LogLineIn[];
  /** Index of the first line that is neither sent nor dropped. */
  head: number;
  /** Number of characters in the waiting lines. */
  chars: number;
  /** Number of lines that were dropped since the last batch. */
  dropped: number;
  /** Number of the next line. */
  next: number;
  timer: NodeJS.Timeout | undefined;
  sending: Promise<void> | null;
  /** Time of the last accepted batch on the monotonic clock in ms. */
  acceptedAt: number;
  /** Total time in ms that programs waited for room. */
  waitedMs: number;
  waiting: Wait | null;
};

export function createLogShipper({
  send,
  onDropped,
  flushMs = 200,
  bounds = BOUNDS,
  redact = (text) => text,
  now = () => new Date(),
}: LogShipperOptions): LogShipper {
  const shipping: Shipping = {
    send,
    onDropped,
    flushMs,
    bounds,
    now,
    hide: createShownText(redact),
    buffer: [],
    head: 0,
    chars: 0,
    dropped: 0,
    next: 0,
    timer: undefined,
    sending: null,
    acceptedAt: performance.now(),
    waitedMs: 0,
    waiting: null,
  };
  return {
    push: (line) => push(shipping, line),
    room: () => room(shipping),
    flush: (signal) => flush(shipping, signal),
  };
}

function push(shipping: Shipping, line: LogLineIn): void {
  const shown = shownLine(shipping, line);
  shipping.buffer.push(shown);
  shipping.chars += sizeOf(shown);
  while (isOver(shipping, 1) && waitingLines(shipping) > 1) {
    shift(shipping);
    shipping.dropped += 1;
  }
  if (shipping.sending === null) sendLater(shipping);
}

function shownLine({ hide, now }: Shipping, line: LogLineIn): LogLineIn {
  const { step } = line;
  const shownStep = step === null || step === undefined ? undefined : hide(step, MAX_STEP, false);
  return {
    ...line,
    at: line.at ?? now().toISOString(),
    text: hide(line.text, MAX_LINE, true),
    ...defined({ step: shownStep }),
  };
}

function room(shipping: Shipping): Promise<void> | null {
  const { bounds, waitedMs, sending, acceptedAt } = shipping;
  if (!isOver(shipping, HIGH) || waitedMs >= bounds.waitMs) return null;
  // The control plane does not answer, and the program has waited long enough since its last
  // answer.
  if (sending !== null && performance.now() - acceptedAt > bounds.stallMs) return null;
  void sendNow(shipping);
  shipping.waiting ??= waitForRoom(shipping);
  return shipping.waiting.promise;
}

/** Begins a wait that ends when there is room, or when a time limit is reached. */
function waitForRoom(shipping: Shipping): Wait {
  const { bounds } = shipping;
  const { promise, resolve } = Promise.withResolvers<void>();
  const began = performance.now();
  const check = setInterval(() => {
    const now = performance.now();
    const isStalled = now - shipping.acceptedAt > bounds.stallMs;
    if (isStalled || shipping.waitedMs + now - began > bounds.waitMs) end();
  }, 100);
  const end = (): void => {
    clearInterval(check);
    if (shipping.waiting?.promise === promise) {
      shipping.waitedMs += performance.now() - began;
      shipping.waiting = null;
    }
    resolve();
  };
  return { promise, end };
}

async function flush(shipping: Shipping, signal: AbortSignal): Promise<void> {
  const began = performance.now();
  const { promise: gaveUp, resolve: giveUp } = Promise.withResolvers<void>();
  if (signal.aborted) giveUp();
  else signal.addEventListener('abort', () => giveUp(), { once: true });
  const check = setInterval(() => {
    if (performance.now() - Math.max(began, shipping.acceptedAt) > FLUSH_STALL_MS) giveUp();
  }, 250);
  const sent = (async () => {
    while (!isEmpty(shipping) || shipping.sending !== null) await sendNow(shipping);
  })();
  await Promise.race([sent, gaveUp]);
  clearInterval(check);
  clearTimeout(shipping.timer);
}

function sendLater(shipping: Shipping): void {
  shipping.timer ??= setTimeout(() => void sendNow(shipping), shipping.flushMs);
}

function sendNow(shipping: Shipping): Promise<void> {
  clearTimeout(shipping.timer);
  shipping.timer = undefined;
  shipping.sending ??= sendAll(shipping).finally(() => {
    shipping.sending = null;
    // Lines that arrived after the last check have no timer yet.
    if (!isEmpty(shipping)) sendLater(shipping);
  });
  return shipping.sending;
}

async function sendAll(shipping: Shipping): Promise<void> {
  // Start the time limit here: before, there was no batch to accept.
  shipping.acceptedAt = performance.now();
  while (!isEmpty(shipping)) {
    const batch = takeBatch(shipping);
    const first = shipping.next;
    shipping.next += batch.length;
    try {
      await shipping.send(first, batch);
    } catch (error) {
      shipping.onDropped(error);
    }
    shipping.acceptedAt = performance.now();
    if (!isOver(shipping, LOW)) shipping.waiting?.end();
  }
}

function takeBatch(shipping: Shipping): LogLineIn[] {
  const batch: LogLineIn[] = [];
  if (shipping.dropped > 0) batch.push(missingLines(shipping));
  shipping.dropped = 0;
  let size = 0;
  while (batch.length < BATCH_LINES && size < BATCH_CHARS) {
    const line = shift(shipping);
    if (line === undefined) break;
    size += sizeOf(line);
    batch.push(line);
  }
  return batch;
}

const missingLines = ({ dropped, now }: Shipping): LogLineIn => ({
  at: now().toISOString(),
  stream: 'system',
  step: null,
  text:
    `… ${dropped} lines are missing here: the agent kept them until its buffer was full, ` +
    'and the control plane took them too slowly or not at all',
});

const sizeOf = (line: LogLineIn): number => line.text.length + LINE_CHARS;
const waitingLines = ({ buffer, head }: Shipping): number => buffer.length - head;
const isEmpty = (shipping: Shipping): boolean => waitingLines(shipping) === 0;

/** Tells whether the waiting lines exceed this fraction of the bounds. */
function isOver(shipping: Shipping, part: number): boolean {
  const { bounds, chars } = shipping;
  return waitingLines(shipping) > bounds.lines * part || chars > bounds.chars * part;
}

/** Removes and returns the oldest line. */
function shift(shipping: Shipping): LogLineIn | undefined {
  const { buffer, head } = shipping;
  const line = buffer[head];
  if (line === undefined) return undefined;
  shipping.chars -= sizeOf(line);
  shipping.head += 1;
  if (shipping.head > 1_000 && shipping.head * 2 > buffer.length) {
    shipping.buffer = buffer.slice(shipping.head);
    shipping.head = 0;
  }
  return line;
}
