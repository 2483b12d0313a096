/** The standard streams as bytes, and the terminal, for `berth exec` and `berth run`. */
import { fstatSync, statSync } from 'node:fs';
import type { ReadStream } from 'node:tty';

export type TerminalSize = { rows: number; cols: number };
export type Pipes = {
  /** Returns whether standard input is a pipe or a file: no terminal, and not /dev/null. */
  hasInput(): boolean;
  /**
   * Reads standard input. The next bytes are read when `onBytes` has resolved. Returns a function
   * that stops reading, so that the process can end.
   */
  read(onBytes: (bytes: Uint8Array) => Promise<void>, onEnd: () => void): () => void;
  /** Resolves when the stream takes more bytes. */
  write(stream: 'stdout' | 'stderr', bytes: Uint8Array): Promise<void>;
  /** Raw: each key goes to the remote side, also Ctrl-C. */
  setRaw(isRaw: boolean): void;
  /** Returns the size of the terminal at stdout; null without a terminal. */
  size(): TerminalSize | null;
  /** Returns a function that removes the listener. */
  onResize(listener: () => void): () => void;
};

export const processPipes = (): Pipes => ({
  hasInput() {
    if (process.stdin.isTTY) return false;
    try {
      const input = fstatSync(0);
      return !input.isCharacterDevice() || input.rdev !== statSync('/dev/null').rdev;
    } catch {
      return false;
    }
  },
  read(onBytes, onEnd) {
    const { stdin } = process;
    let isStopped = false;
    const onData = (bytes: Buffer): void => {
      stdin.pause();
      void onBytes(bytes).then(() => isStopped || stdin.resume());
    };
    stdin.on('data', onData);
    stdin.once('end', onEnd);
    // A closed standard input is an empty one.
    stdin.once('error', onEnd);
    return () => {
      isStopped = true;
      stdin.off('data', onData);
      stdin.off('end', onEnd);
      stdin.pause();
      // A pipe that nobody ends would keep this process alive.
      if (stdin.isTTY) stdin.unref();
      else stdin.destroy();
    };
  },
  write: (stream, bytes) => new Promise((resolve) => process[stream].write(bytes, () => resolve())),
  setRaw(isRaw) {
    if (process.stdin.isTTY) (process.stdin as ReadStream).setRawMode(isRaw);
  },
  size() {
    const { isTTY, rows, columns: cols } = process.stdout;
    // A terminal without a size, such as a serial line, says 0.
    return isTTY && rows > 0 && cols > 0 ? { rows, cols } : null;
  },
  onResize(listener) {
    process.stdout.on('resize', listener);
    return () => void process.stdout.off('resize', listener);
  },
});
