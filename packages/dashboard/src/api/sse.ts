/** Parser of event streams (WHATWG HTML, "Server-sent events"). `EventSource` cannot tell a 401 from a lost connection. */

export type SseFrame = { event: string; data: string; id: string | null };

/** Throws if no byte arrives for `silenceMs`. Ends with the stream. */
export async function* readSse(body: ReadableStream<Uint8Array>, silenceMs: number): AsyncGenerator<SseFrame> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let buffer = '';
  try {
    for (;;) {
      const { done, value } = await withDeadline(reader.read(), silenceMs);
      if (done) return;
      buffer += decoder.decode(value, { stream: true });
      let end = buffer.indexOf('\n\n');
      while (end >= 0) {
        const frame = parse(buffer.slice(0, end));
        if (frame !== null) yield frame;
        buffer = buffer.slice(end + 2);
        end = buffer.indexOf('\n\n');
      }
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

/** Returns null for a comment. Berth writes `\n` only. */
function parse(text: string): SseFrame | null {
  const frame: SseFrame = { event: 'message', data: '', id: null };
  const data: string[] = [];
  for (const line of text.split('\n')) {
    const colon = line.indexOf(':');
    if (colon <= 0) continue;
    const value = line.slice(colon + 1).replace(/^ /, '');
    const name = line.slice(0, colon);
    if (name === 'event') frame.event = value;
    else if (name === 'id') frame.id = value;
    else if (name === 'data') data.push(value);
  }
  if (data.length === 0 && frame.id === null) return null;
  return { ...frame, data: data.join('\n') };
}

function withDeadline<T>(promise: Promise<T>, ms: number): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`nothing arrived for ${ms / 1000} s`)), ms);
    promise.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}
