/**
 * Shutdown of a process: runs all registered closers in reverse order, each with a deadline, after
 * a signal.
 */
import type { Logger } from './log.ts';

export type Closers = {
  add(name: string, close: () => unknown): void;
  /** Runs all closers, the last added first. Never throws. A second call waits for the first. */
  close(): Promise<void>;
};

export function createClosers(log: Logger, deadlineMs = 15_000): Closers {
  const list: { name: string; close: () => unknown }[] = [];
  let closing: Promise<void> | null = null;

  async function closeAll(): Promise<void> {
    for (const { name, close } of list.toReversed()) {
      const late = AbortSignal.timeout(deadlineMs);
      const timeout = new Promise<never>((_, reject) =>
        late.addEventListener('abort', () =>
          reject(new Error(`did not close within ${deadlineMs} ms`)),
        ),
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

/**
 * On SIGTERM or SIGINT, closes everything and exits with 0. A second signal exits with 1
 * immediately.
 */
export function closeOnSignals(closers: Closers, log: Logger): void {
  let isClosing = false;
  const onSignal = (signal: NodeJS.Signals): void => {
    if (isClosing) process.exit(1);
    isClosing = true;
    log.info({ signal }, 'shutting down');
    void closers.close().then(() => process.exit(0));
  };
  process.on('SIGTERM', onSignal);
  process.on('SIGINT', onSignal);
}
