/** Reads the output of a program in chunks, redacts it, truncates its lines, and keeps its end. */
import type { Readable } from 'node:stream';
import { cutLine } from './lines.ts';

export const redactor = (secrets: readonly string[] = []): ((text: string) => string) => {
  // Replace the longest secret first, because a secret can contain another one.
  const list = [...secrets].filter((s) => s.length > 0).sort((a, b) => b.length - a.length);
  return (text) => list.reduce((t, secret) => t.replaceAll(secret, '***'), text);
};

/**
 * Calls `onChunk` with each part and resolves at the end of the stream. Pauses reading while the
 * promise of `room` is pending.
 */
export function readChunks(
  stream: Readable,
  onChunk: (chunk: Buffer) => void,
  room: () => Promise<void> | null,
): Promise<void> {
  stream.on('data', (chunk: Buffer) => {
    onChunk(chunk);
    const wait = room();
    if (wait === null) return;
    stream.pause();
    void wait.finally(() => stream.resume());
  });
  return new Promise((resolve, reject) => {
    stream.on('error', reject);
    // `close` also fires if the stream was destroyed before its end.
    stream.on('close', () => resolve());
  });
}

export async function passBytes(
  stream: Readable,
  onOutput: (bytes: Buffer) => Promise<void>,
): Promise<void> {
  for await (const bytes of stream as AsyncIterable<Buffer>) await onOutput(bytes);
}

/**
 * Keeps the last `limit` characters of the added text, in complete lines if possible. Copies each
 * character a bounded number of times.
 */
export function createTail(limit: number) {
  let text = '';
  let cut = false;
  const trim = (): void => {
    if (text.length <= limit) return;
    cut = true;
    const from = text.length - limit;
    // Cut at the beginning of a line, unless the last line alone is longer than the limit.
    const line = text.indexOf('\n', from - 1) + 1;
    text = text.slice(line > 0 && line < text.length ? line : from);
  };
  return {
    add(more: string): void {
      text += more;
      if (text.length > 2 * limit) trim();
    },
    end(): { text: string; cut: boolean } {
      trim();
      return { text, cut };
    },
  };
}

/**
 * Redacts a line and truncates it to `maxLine`. It redacts first and drops the last characters of a
 * truncated line, because the line can end with half a secret.
 */
export function presenter(secrets: readonly string[], maxLine: number) {
  const hide = redactor(secrets);
  const longestSecret = Math.max(0, ...secrets.map((secret) => secret.length));
  const seen = maxLine + longestSecret;
  return {
    seen,
    longestSecret,
    present(raw: string, missing = 0): string {
      if (missing === 0 && raw.length <= seen) return cutLine(hide(raw), maxLine);
      const hidden = hide(raw.slice(0, seen));
      const kept = hidden.slice(0, Math.max(0, hidden.length - longestSecret));
      return cutLine(
        kept,
        maxLine,
        missing + Math.max(0, raw.length - seen) + hidden.length - kept.length,
      );
    },
  };
}
