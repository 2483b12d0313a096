/**
 * The feed of events, as pages or as a stream that goes on. The stream's `id:` is the event's `seq`, so that Last-Event-ID goes on
 * where it broke. A reader that fell behind what is kept first gets an event of kind `gap`, which carries no id: after a break it comes again.
 */
import type { Event } from '@berth/wire/event';
import type { Role } from '@berth/wire/vocabulary';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { DomainError } from '../../domain/errors.ts';
import type { FeedEvent } from '../../domain/event-store.ts';
import type { Callers } from '../auth/callers.ts';
import { type Define, SENT } from '../define.ts';
import type { ApiDeps } from '../deps.ts';
import type { Hold, Holds } from '../holds.ts';
import { type EventStream, openEventStream, resumeAt } from '../sse.ts';
import { time } from '../views.ts';

const PAGE = 200;
/** Another control plane may write events, and not every writer here says so: looked at as often as this without being told. */
const LOOK_MS = 1_000;
const HEARTBEAT_MS = 15_000;

export function eventRoutes(route: Define, deps: ApiDeps & { holds: Holds; callers: Callers }): void {
  const { stores, changes, holds, callers, now } = deps;

  route('events', async ({ query, user, stream, request, reply }) => {
    if (stream) return follow(resumeAt(request.raw, query.after ?? null), user.id, request, reply);
    const page = await read(query.after ?? null, query.limit ?? PAGE, user.role);
    return { items: page.items, next: page.next, gap: page.gap };
  });

  /** `next` counts events that the caller may not see too: they are not looked at again. */
  async function read(after: number | null, limit: number, role: Role): Promise<{ items: Event[]; next: number; gap: boolean }> {
    const { items, oldest, newest, gap } = await stores.events.read(after, limit);
    const next = items.at(-1)?.seq ?? newest;
    const seen = items.filter((event) => maySee(event, role)).map(eventView);
    return { items: gap ? [gapEvent(oldest ?? 0), ...seen] : seen, next, gap };
  }
  const gapEvent = (oldest: number): Event => ({
    seq: oldest,
    at: time(now()),
    kind: 'gap',
    message: `events before ${oldest} are not kept any more: read again what you show`,
  });

  async function follow(after: number | null, userId: string, request: FastifyRequest, reply: FastifyReply): Promise<typeof SENT> {
    const hold = holds.begin('events', reply.raw, userId);
    if (hold === null) throw new DomainError('too_many_requests', 'too many streams are open; close some first');
    reply.hijack();
    const stream = openEventStream(reply.raw, { 'x-request-id': request.id, 'x-content-type-options': 'nosniff' }, hold.signal);
    try {
      await pump(after ?? (await stores.events.read(null, 1)).newest, stream, hold, request);
    } catch (error) {
      // The client left, the server closes or the caller's right ended; anything else is a fault. The break makes the client come again.
      if (!hold.signal.aborted && !(error instanceof DomainError)) request.log.error({ err: error }, 'event stream failed');
    } finally {
      hold.release();
      stream.end();
    }
    return SENT;
  }

  async function pump(from: number, stream: EventStream, hold: Hold, request: FastifyRequest): Promise<void> {
    let after = from;
    let quietSince = performance.now();
    for (;;) {
      const look = new AbortController();
      // Subscribed before the look: what is written during it is not missed.
      const moved = changes.wait('events', LOOK_MS, AbortSignal.any([hold.signal, look.signal]));
      try {
        // A token that ends, a user who is disabled or whose role changes: the stream goes by it at once.
        const { role } = await callers.user(request.headers.authorization);
        const { items, next } = await read(after, PAGE, role);
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
        await moved;
        hold.signal.throwIfAborted();
      } finally {
        look.abort();
      }
    }
  }
}

/** Everybody sees all projects, nodes and datasets; people are for admins. */
const maySee = (event: FeedEvent, role: Role): boolean => event.user_id === null || role === 'admin';

const eventView = ({ seq, at, kind, message, ...about }: FeedEvent): Event => ({
  seq,
  at: time(at),
  kind,
  ...Object.fromEntries(Object.entries(about).filter(([, id]) => id !== null)),
  message,
});
