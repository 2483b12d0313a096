/** Reads an event stream of the control plane. */
import { defined } from '@berth/kit/defined';
import { messageOf } from '@berth/kit/message-of';
import { ApiError, UnreachableError } from '@berth/wire/client';
import { createFrameReader } from '@berth/wire/event-stream';
import { readText } from './http.ts';
import type { Session } from './session/session.ts';

export type StreamEvent = { event: string; id: string | null; data: unknown };

/**
 * Yields the events of one connection. Ends when the server ends the stream. Throws
 * UnreachableError if the connection breaks.
 */
export async function* readStream(
  session: Session,
  path: string,
  lastId: string | null,
  signal: AbortSignal,
): AsyncGenerator<StreamEvent> {
  const headers = {
    accept: 'text/event-stream',
    ...defined({ 'last-event-id': lastId ?? undefined }),
  };
  try {
    const answer = await session.send(`${session.url}${path}`, { headers, signal });
    if (answer.status !== 200) throw await errorOf(answer.status, await readText(answer.message));
    const frames = createFrameReader();
    for await (const part of answer.message.setEncoding('utf8') as AsyncIterable<string>)
      for (const { event, id, data } of frames.add(part))
        if (data !== '') yield { event, id, data: JSON.parse(data) as unknown };
    if (!answer.message.complete) throw new Error('the connection ended');
  } catch (error) {
    if (signal.aborted) return;
    if (error instanceof ApiError || (error instanceof Error && error.name === 'CliError'))
      throw error;
    throw new UnreachableError(`${session.url}: ${messageOf(error)}`, { cause: error });
  }
}

async function errorOf(status: number, text: string): Promise<ApiError> {
  try {
    const problem = JSON.parse(text) as NonNullable<ApiError['problem']>;
    if (typeof problem.code === 'string')
      return new ApiError(status, problem.code, problem.detail, problem);
  } catch {
    // The answer is a page from a proxy.
  }
  return new ApiError(status, `http_${status}`, text.slice(0, 300), null);
}
