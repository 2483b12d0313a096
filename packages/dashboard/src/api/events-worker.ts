/** Shared worker: keeps one event stream for all tabs of a browser. */
import { followEvents, type StreamNews } from './event-stream.ts';

type Scope = { addEventListener(name: 'connect', listener: (event: MessageEvent) => void): void };

const ports = new Set<MessagePort>();
/** The last state of the stream; a tab that joins later gets it. */
let state: StreamNews | null = null;
let stop: (() => void) | null = null;

function tell(news: StreamNews): void {
  if (news.kind !== 'event') state = news;
  for (const port of ports) port.postMessage(news);
}

(globalThis as unknown as Scope).addEventListener('connect', ({ ports: [port] }) => {
  if (port === undefined) return;
  ports.add(port);
  port.addEventListener('message', ({ data }) => {
    if (data !== 'leave') return;
    ports.delete(port);
    if (ports.size > 0) return;
    stop?.();
    stop = null;
    state = null;
  });
  port.start();
  if (state !== null)
    port.postMessage(state.kind === 'open' ? { kind: 'open', again: false } : state);
  stop ??= followEvents(tell);
});
