/** Reads event streams. `EventSource` cannot distinguish a 401 from a lost connection. */
import { createFrameReader, type Frame } from '@berth/wire/event-stream';

/** Yields the frames of a stream until it ends. Throws if no byte arrives for `silenceMs`. */
export async function* readSse(
  body: ReadableStream<Uint8Array>,
  silenceMs: number,
): AsyncGenerator<Frame> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  const frames = createFrameReader();
  try {
    for (;;) {
      const { done, value } = await withDeadline(reader.read(), silenceMs);
      if (done) return;
      yield* frames.add(decoder.decode(value, { stream: true }));
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

function withDeadline<T>(promise: Promise<T>, ms: number): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`nothing arrived for ${ms / 1000} s`)), ms);
    promise.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}
