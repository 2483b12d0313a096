/**
 * Reads `GET /api/events` as a stream and reconnects whenever it ends (WHATWG HTML, "Server-sent
 * events"). Runs in pages and workers.
 */
import { defined } from '@berth/kit/defined';
import type { Event } from '@berth/wire/event';
import type { Frame } from '@berth/wire/event-stream';
import { readSse } from './sse.ts';

/** `again`: this is a reconnect, so events might have been missed. */
export type StreamNews =
  | { kind: 'event'; event: Event }
  | { kind: 'open'; again: boolean }
  | { kind: 'away' }
  | { kind: 'signed_out' };

/**
 * Time in ms without any byte after which a stream is dead. The control plane sends a comment at
 * least every 15 s.
 */
const SILENCE_MS = 45_000;
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 5_000;

export function followEvents(tell: (news: StreamNews) => void): () => void {
  const stopped = new AbortController();
  void run(tell, stopped.signal);
  return () => stopped.abort();
}

async function run(tell: (news: StreamNews) => void, signal: AbortSignal): Promise<void> {
  let after: string | null = null;
  let pause = FIRST_PAUSE_MS;
  let opened = false;
  while (!signal.aborted) {
    const attempt = new AbortController();
    const stop = (): void => attempt.abort();
    signal.addEventListener('abort', stop);
    try {
      const response: Response = await fetch('/api/events', {
        headers: {
          accept: 'text/event-stream',
          ...defined({ 'last-event-id': after ?? undefined }),
        },
        signal: attempt.signal,
      });
      if (response.status === 401) {
        tell({ kind: 'signed_out' });
        pause = LONGEST_PAUSE_MS;
      } else if (!response.ok || response.body === null) tell({ kind: 'away' });
      else {
        tell({ kind: 'open', again: opened });
        opened = true;
        pause = FIRST_PAUSE_MS;
        const frames: AsyncGenerator<Frame> = readSse(response.body, SILENCE_MS);
        for await (const frame of frames) {
          if (frame.id !== null) after = frame.id;
          if (frame.data !== '') tell({ kind: 'event', event: JSON.parse(frame.data) as Event });
        }
      }
    } catch {
      // A lost connection alone does not mean that the control plane is away, so report it only
      // after a retry failed too.
      if (!signal.aborted && pause > FIRST_PAUSE_MS) tell({ kind: 'away' });
    } finally {
      signal.removeEventListener('abort', stop);
      attempt.abort();
    }
    await wait(pause, signal);
    pause = Math.min(pause * 2, LONGEST_PAUSE_MS);
  }
}

const wait = (ms: number, signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    const timer = setTimeout(done, ms);
    function done(): void {
      clearTimeout(timer);
      signal.removeEventListener('abort', done);
      resolve();
    }
    signal.addEventListener('abort', done);
  });
