/**
 * Stores messages of the builder in a file while the log is full. The builder must not wait: a
 * BuildKit client fails if it has not read all messages 3 s after the end of its build, and then a
 * successful build would fail.
 */
import { closeSync, openSync, readSync, writeSync } from 'node:fs';
import { setImmediate as turn } from 'node:timers/promises';

/** Maximum size of the file in bytes. Only when it is full must the builder wait. */
const MAX_BYTES = 1024 ** 3;
/** After this many messages, the spool pauses, so that the agent can do its other work. */
const AT_ONCE = 50;

export type SpoolOptions = {
  /** Path of the file, which must not exist. */
  path: string;
  /** Returns a promise to wait for while the log is full; null if the log has room. */
  room: () => Promise<void> | null;
  take: (message: string) => void;
  signal: AbortSignal;
  maxBytes?: number;
};
export type BuildSpool = {
  add(message: string): void;
  /** Returns a promise to wait for while the file is full; null if it has room. */
  room(): Promise<void> | null;
  /** Resolves when all messages are taken, or when the signal aborts. */
  end(): Promise<void>;
};

export function createBuildSpool({
  path,
  room,
  take,
  signal,
  maxBytes = MAX_BYTES,
}: SpoolOptions): BuildSpool {
  let file: number | null = null;
  /** Sizes of the messages that are still in the file. */
  let sizes: number[] = [];
  let next = 0;
  let readAt = 0;
  let writeAt = 0;
  let emptying: Promise<void> | null = null;
  let failed: { error: unknown } | null = null;
  const aborted = new Promise<void>((resolve) =>
    signal.addEventListener('abort', () => resolve(), { once: true }),
  );

  async function empty(): Promise<void> {
    while (next < sizes.length && !signal.aborted) {
      const wait = room();
      if (wait !== null) await Promise.race([wait, aborted]);
      else if (next % AT_ONCE === 0) await turn();
      if (signal.aborted) return;
      const size = sizes[next] ?? 0;
      const bytes = Buffer.alloc(size);
      for (let have = 0; have < size; ) {
        const got = readSync(file ?? -1, bytes, have, size - have, readAt + have);
        if (got === 0) throw new Error('the messages of the builder are cut off in their file');
        have += got;
      }
      readAt += size;
      next += 1;
      take(bytes.toString('utf8'));
    }
    // Reuse the file from its beginning: all its messages are taken.
    sizes = [];
    next = 0;
    readAt = 0;
    writeAt = 0;
  }

  return {
    add(message) {
      if (failed !== null || signal.aborted) return;
      if (emptying === null && room() === null) return take(message);
      const bytes = Buffer.from(message);
      try {
        file ??= openSync(path, 'wx+', 0o600);
        for (let written = 0; written < bytes.length; )
          written += writeSync(file, bytes, written, bytes.length - written, writeAt + written);
      } catch (error) {
        failed ??= { error };
        return;
      }
      writeAt += bytes.length;
      sizes.push(bytes.length);
      emptying ??= empty()
        .catch((error: unknown) => void (failed ??= { error }))
        .finally(() => (emptying = null));
    },
    room: () => (writeAt - readAt > maxBytes ? emptying : null),
    async end() {
      while (emptying !== null) await emptying;
      if (file !== null) closeSync(file);
      file = null;
      if (failed !== null) throw failed.error;
    },
  };
}
