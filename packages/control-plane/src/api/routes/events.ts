/**
 * The feed of events, as pages or as a live stream. The `id:` in the stream is the `seq` of the
 * event, so Last-Event-ID resumes an interrupted stream. If retention removed events that the
 * reader has not seen, the reader first gets an event of kind `gap`. The `gap` has no id, so a
 * reader that reconnects gets it again.
 */
import { defined } from '@berth/kit/defined';
import type { Event } from '@berth/wire/event';
import { invalid } from '../../domain/platform/errors.ts';
import type { EventFilter, FeedEvent, EventStore } from '../../domain/platform/event-store.ts';
import type { Caller } from '../auth/callers.ts';
import type { Call, Define } from '../define.ts';
import type { Hold, Holds } from '../long-poll.ts';
import { type EventStream, resumeAt } from '../sse.ts';
import { streamTo } from '../stream-answer.ts';
import { time } from '../views.ts';
import type { Changes } from '../../domain/platform/changes.ts';

type Recheck = () => Promise<Caller>;

const PAGE = 200;
/**
 * Poll interval if no notification arrives: another control plane can write events, and some
 * writers here do not notify.
 */
const POLL_MS = 1_000;
const HEARTBEAT_MS = 15_000;

export type Deps = {
  events: Pick<EventStore, 'read'>;
  changes: Pick<Changes, 'wait'>;
  holds: Pick<Holds, 'begin'>;
  now: () => number;
};

export function eventRoutes(route: Define, deps: Deps): void {
  route('events', (call) => events(deps, call));
}

async function events(
  deps: Deps,
  { query, user, recheck, stream, request, reply }: Call<'events'>,
) {
  if (stream) {
    for (const name of ['before', 'find'] as const)
      if (query[name] !== undefined)
        throw invalid(name, 'stream', 'must be left out of a stream; request JSON');
    const after = resumeAt(request.raw, query.after ?? null);
    return streamTo({
      holds: deps.holds,
      kind: 'events',
      userId: user.id,
      request,
      reply,
      pump: async (feed, hold) =>
        pump(deps, after ?? (await deps.events.read(null, 1)).newest, feed, hold, recheck),
      onFault: (err) => request.log.error({ err }, 'event stream failed'),
    });
  }
  const { after = null, limit = PAGE, before, find } = query;
  if (after !== null && before !== undefined)
    throw invalid('before', 'exclusive', 'must not be given together with `after`');
  const filter = defined({ before, find });
  const { items, next, gap, previous } = await read(deps, after, limit, user, filter);
  return {
    items,
    next,
    gap,
    ...defined({ previous: after !== null || previous === null ? undefined : previous }),
  };
}

type Page = { items: Event[]; next: number; previous: number | null; gap: boolean };

/**
 * Reads a page of events. `next` also skips events that the caller cannot see, so that they are not
 * read again. `previous`: the first number of the page; null if there are no older events.
 */
async function read(
  deps: Deps,
  after: number | null,
  limit: number,
  { id, role, access }: Caller,
  filter: EventFilter = {},
): Promise<Page> {
  const reader = role === 'admin' ? {} : { reader: id };
  const { items, oldest, newest, gap } = await deps.events.read(after, limit, access, {
    ...filter,
    ...reader,
  });
  const next = items.length < limit ? newest : (items.at(-1)?.seq ?? newest);
  const first = items[0]?.seq ?? oldest;
  const previous = items.length < limit || first === oldest ? null : first;
  const seen = items.map(eventView);
  return { items: gap ? [gapEvent(deps, oldest ?? 0), ...seen] : seen, next, previous, gap };
}

function gapEvent(deps: Deps, oldest: number): Event {
  return {
    seq: oldest,
    at: time(deps.now()),
    kind: 'gap',
    message: `events before ${oldest} were removed: reload what you show`,
  };
}

async function pump(
  deps: Deps,
  from: number,
  stream: EventStream,
  hold: Hold,
  recheck: Recheck,
): Promise<void> {
  let after = from;
  let quietSince = performance.now();
  for (;;) {
    const round = new AbortController();
    // Subscribe before reading, so that no event is missed.
    const notified = deps.changes.wait(
      'events',
      POLL_MS,
      AbortSignal.any([hold.signal, round.signal]),
    );
    try {
      // Apply changed rights at once, and end the stream when the token expires or the user is
      // disabled.
      const { items, next } = await read(deps, after, PAGE, await recheck());
      for (const event of items) {
        const id = event.kind === 'gap' ? {} : { id: event.seq };
        await stream.send({ event: 'message', data: event, ...id });
      }
      if (next !== after) quietSince = performance.now();
      after = next;
      if (items.length >= PAGE) continue;
      if (performance.now() - quietSince >= HEARTBEAT_MS) {
        await stream.comment('still here');
        quietSince = performance.now();
      }
      await notified;
      hold.signal.throwIfAborted();
    } finally {
      round.abort();
    }
  }
}

const eventView = ({ seq, at, kind, message, ...about }: FeedEvent): Event => ({
  seq,
  at: time(at),
  kind,
  ...Object.fromEntries(Object.entries(about).filter(([, id]) => id !== null)),
  message,
});
