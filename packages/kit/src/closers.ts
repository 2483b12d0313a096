/** What a process must undo when it ends, in reverse order, each with a deadline; and the signals that make it end. */
import type { Logger } from './log.ts';

export type Closers = {
  add(name: string, close: () => unknown): void;
  /** Runs all of them, last added first. Never throws; the second call waits for the first. */
  close(): Promise<void>;
};

export function createClosers(log: Logger, deadlineMs = 15_000): Closers {
  const list: { name: string; close: () => unknown }[] = [];
  let closing: Promise<void> | null = null;

  async function closeAll(): Promise<void> {
    for (const { name, close } of list.toReversed()) {
      const late = AbortSignal.timeout(deadlineMs);
      const timeout = new Promise<never>((_, reject) =>
        late.addEventListener('abort', () => reject(new Error(`still not closed after ${deadlineMs} ms`))),
      );
      try {
        await Promise.race([Promise.resolve().then(close), timeout]);
      } catch (error) {
        log.error({ err: error, what: name }, 'closing failed');
      }
    }
  }
  return {
    add: (name, close) => void list.push({ name, close }),
    close: () => (closing ??= closeAll()),
  };
}

/** SIGTERM and SIGINT close everything and exit 0; a second one exits 1 at once. */
export function closeOnSignals(closers: Closers, log: Logger): void {
  let asked = false;
  const onSignal = (signal: NodeJS.Signals): void => {
    if (asked) process.exit(1);
    asked = true;
    log.info({ signal }, 'shutting down');
    void closers.close().then(() => process.exit(0));
  };
  process.on('SIGTERM', onSignal);
  process.on('SIGINT', onSignal);
}
