/**
 * Keeps messages of the builder in a file while the log has no room for them. The builder itself
 * must not wait: a client of BuildKit that has not read all messages 3 s after the end of its build
 * fails, and with it a build that has succeeded.
 */
import { closeSync, openSync, readSync, writeSync } from 'node:fs';
import { setImmediate as turn } from 'node:timers/promises';

/** Bytes in the file. Beyond them the builder waits after all. */
const MAX_BYTES = 1024 ** 3;
/** Messages that are taken without a pause for other work of the agent. */
const AT_ONCE = 50;

export type SpoolOptions = {
  /** The file; it must not exist. */
  path: string;
  /** Null: the log has room. */
  room: () => Promise<void> | null;
  take: (message: string) => void;
  signal: AbortSignal;
  maxBytes?: number;
};
export type BuildSpool = {
  add(message: string): void;
  /** Whether the builder has to wait: the file is full. */
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
  /** Sizes of the messages in the file that are not taken yet. */
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
    // The bytes that are taken are not needed again.
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
