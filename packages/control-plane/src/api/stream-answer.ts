/** Answers a request with a live stream of events, until the client, server or a fault ends it. */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { DomainError } from '../domain/platform/errors.ts';
import { SENT } from './define.ts';
import type { Hold, HoldKind, Holds } from './long-poll.ts';
import { type EventStream, openEventStream } from './sse.ts';

export type StreamAnswer = {
  holds: Pick<Holds, 'begin'>;
  kind: HoldKind;
  /** The person whose holds are counted. */
  userId: string;
  request: FastifyRequest;
  reply: FastifyReply;
  /**
   * Sends events until the hold ends. A DomainError means that the rights have ended, and ends the
   * stream.
   */
  pump(stream: EventStream, hold: Hold): Promise<void>;
  /** Logs a fault. The client reconnects. */
  onFault(error: unknown): void;
};

/** Streams the events. Throws too_many_requests. */
export async function streamTo({
  holds,
  kind,
  userId,
  request,
  reply,
  pump,
  onFault,
}: StreamAnswer): Promise<typeof SENT> {
  const hold = holds.begin(kind, reply.raw, userId);
  if (hold === null)
    throw new DomainError('too_many_requests', 'too many streams are open; close some first');
  reply.hijack();
  const headers = { 'x-request-id': request.id, 'x-content-type-options': 'nosniff' };
  const stream = openEventStream(reply.raw, headers, hold.signal);
  try {
    await pump(stream, hold);
  } catch (error) {
    // Do not log normal ends: the client disconnects, the server closes, or the caller's rights
    // end.
    if (!hold.signal.aborted && !(error instanceof DomainError)) onFault(error);
  } finally {
    hold.release();
    stream.end();
  }
  return SENT;
}
