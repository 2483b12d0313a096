/** Reads an event stream (WHATWG HTML, section 9.2.6) with the fields that Berth sends: `event`, `id`, `data`. */
import { ApiError, UnreachableError } from '@berth/wire/client';
import { readText } from './http.ts';
import type { Session } from './session/session.ts';

export type StreamEvent = { event: string; id: string | null; data: unknown };

/** Longest event in characters: a log line has at most 16 KiB. */
const MAX_EVENT = 1024 * 1024;

/** Yields the events of one connection. Ends when the server ends the stream. Throws UnreachableError when the connection breaks. */
export async function* readStream(session: Session, path: string, lastId: string | null, signal: AbortSignal): AsyncGenerator<StreamEvent> {
  const headers = { accept: 'text/event-stream', ...(lastId === null ? {} : { 'last-event-id': lastId }) };
  try {
    const answer = await session.send(`${session.url}${path}`, { headers, signal });
    if (answer.status !== 200) throw await errorOf(answer.status, await readText(answer.message));
    let rest = '';
    for await (const part of answer.message.setEncoding('utf8') as AsyncIterable<string>) {
      rest += part;
      const events = rest.split('\n\n');
      rest = events.pop() ?? '';
      if (rest.length > MAX_EVENT) throw new Error('an event of the stream is too long');
      for (const text of events) {
        const event = parse(text);
        if (event !== null) yield event;
      }
    }
    if (!answer.message.complete) throw new Error('the connection ended');
  } catch (error) {
    if (signal.aborted) return;
    if (error instanceof ApiError || (error instanceof Error && error.name === 'CliError')) throw error;
    throw new UnreachableError(`${session.url}: ${error instanceof Error ? error.message : String(error)}`, { cause: error });
  }
}

async function errorOf(status: number, text: string): Promise<ApiError> {
  try {
    const problem = JSON.parse(text) as NonNullable<ApiError['problem']>;
    if (typeof problem.code === 'string') return new ApiError(status, problem.code, problem.detail, problem);
  } catch {
    // A proxy in between answered with a page.
  }
  return new ApiError(status, `http_${status}`, text.slice(0, 300), null);
}

function parse(text: string): StreamEvent | null {
  let event = 'message';
  let id: string | null = null;
  const data: string[] = [];
  for (const line of text.split('\n')) {
    const [, field, value = ''] = /^([a-z]+):? ?(.*)$/.exec(line) ?? [];
    if (field === 'event') event = value;
    else if (field === 'id') id = value;
    else if (field === 'data') data.push(value);
  }
  return data.length === 0 ? null : { event, id, data: JSON.parse(data.join('\n')) as unknown };
}
