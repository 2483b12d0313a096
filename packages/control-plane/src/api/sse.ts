/**
 * Server-sent events (WHATWG HTML, "Server-sent events"). Sends events in order, and no faster than
 * the client reads them.
 */
import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { prefers } from './accept.ts';

export type SseEvent = { event: string; data: unknown; id?: number | string };
export type EventStream = {
  /**
   * Sends an event. Resolves when the socket accepts more data. Throws an AbortError when the
   * client disconnects or the server closes.
   */
  send(event: SseEvent): Promise<void>;
  /** Sends events in one write. Their total size must have a limit. */
  sendAll(events: readonly SseEvent[]): Promise<void>;
  comment(text: string): Promise<void>;
  end(): void;
  /** Closes the connection immediately, even if the client reads nothing. Frees the unsent data. */
  abort(): void;
};

/** Returns whether the client prefers an event stream to JSON (RFC 9110 section 12.5.1). */
export const wantsEventStream = (request: IncomingMessage): boolean =>
  request.method === 'GET' &&
  prefers(request.headers.accept, 'text/event-stream', 'application/json');

/** Returns the Last-Event-ID of a client that reconnects, else `after`. */
export function resumeAt<A extends number | null>(request: IncomingMessage, after: A): A | number {
  const id = request.headers['last-event-id'];
  return typeof id === 'string' && /^\d{1,15}$/.test(id) ? Number(id) : after;
}

export function openEventStream(
  response: ServerResponse,
  headers: Record<string, string>,
  signal: AbortSignal,
): EventStream {
  response.writeHead(200, {
    ...headers,
    'content-type': 'text/event-stream; charset=utf-8',
    'cache-control': 'no-store',
    'x-accel-buffering': 'no',
  });
  response.flushHeaders();
  const write = async (text: string): Promise<void> => {
    signal.throwIfAborted();
    if (!response.write(text)) await once(response, 'drain', { signal });
  };
  return {
    send: (event) => write(textOf(event)),
    sendAll: async (events) =>
      events.length === 0 ? undefined : write(events.map(textOf).join('')),
    comment: (text) => write(`: ${text}\n\n`),
    end: () => void response.end(),
    abort: () => void response.destroy(),
  };
}

/** Formats an event. JSON.stringify writes no line breaks, so each event has one `data:` line. */
const textOf = ({ event, data, id }: SseEvent): string =>
  `${id === undefined ? '' : `id: ${id}\n`}event: ${event}\ndata: ${JSON.stringify(data)}\n\n`;
