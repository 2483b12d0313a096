/**
 * Live updates. Events from the control plane are hints: each event marks the queries that might
 * have changed, and the page fetches them again. All tabs of a browser share one stream
 * (events-worker.ts). A browser without shared workers has one stream for each visible tab.
 */
import type { Event } from '@berth/wire/event';
import type { RouteName } from '@berth/wire/routes';
import { reportAnswer, reportProblem, whenBack } from './connection.ts';
import { followEvents, type StreamNews } from './event-stream.ts';
import { queries } from './queries.ts';
import { routesOf } from './routes-of.ts';

/** Debounce in ms: events within this time cause one round of queries. */
const GATHER_MS = 200;
let waiting: Set<RouteName> | 'all' | null = null;

function mark(event: Pick<Event, 'kind'>): void {
  const routes = routesOf(event.kind);
  if (waiting === null) setTimeout(flush, GATHER_MS);
  if (routes === null || waiting === 'all') waiting = 'all';
  else waiting = new Set([...(waiting ?? []), ...routes, 'events']);
}

function flush(): void {
  const marked = waiting;
  waiting = null;
  if (marked === null) return;
  void queries.invalidateQueries({
    predicate: ({ queryKey: [name] }) => marked === 'all' || marked.has(name as RouteName),
  });
}

function take(news: StreamNews): void {
  if (news.kind === 'event') {
    mark(news.event);
  } else if (news.kind === 'open') {
    reportAnswer();
    // Events might have been missed before the stream reconnected.
    if (news.again) {
      void queries.invalidateQueries();
      void findUpgrade();
    }
  } else if (news.kind === 'away') reportProblem('away');
  else reportProblem('signed_out');
}

/**
 * Reports `outdated` after an upgrade. The name of the first script changes with each version of
 * the page, so the server no longer has the old script.
 */
async function findUpgrade(): Promise<void> {
  const script = document.querySelector<HTMLScriptElement>('script[type="module"]');
  if (script === null) return;
  const answer = await fetch(script.src, { method: 'HEAD', cache: 'no-store' }).catch(() => null);
  if (answer?.status === 404) reportProblem('outdated');
}

/** Starts the stream. Returns the function that stops it. */
export function startLive(): () => void {
  const stopReturn = whenBack(() => void queries.invalidateQueries());
  const stop = typeof SharedWorker === 'undefined' ? whileVisible() : shared();
  return () => {
    stopReturn();
    stop();
  };
}

function shared(): () => void {
  const worker = new SharedWorker(new URL('./events-worker.ts', import.meta.url), {
    type: 'module',
    name: 'berth-events',
  });
  worker.port.addEventListener('message', ({ data }: MessageEvent<StreamNews>) => take(data));
  worker.port.start();
  const leave = (): void => worker.port.postMessage('leave');
  addEventListener('pagehide', leave);
  return () => {
    removeEventListener('pagehide', leave);
    leave();
    worker.port.close();
  };
}

function whileVisible(): () => void {
  let stop: (() => void) | null = null;
  const change = (): void => {
    if (document.visibilityState === 'hidden') {
      stop?.();
      stop = null;
    } else stop ??= followEvents(take);
  };
  document.addEventListener('visibilitychange', change);
  change();
  return () => {
    document.removeEventListener('visibilitychange', change);
    stop?.();
  };
}
