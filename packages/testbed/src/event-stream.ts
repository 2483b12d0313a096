/** Reads event streams of the control plane. */
import { createFrameReader, type Frame } from '@berth/wire/event-stream';

export type { Frame };

/** Yields each frame with data. Ends with the stream, and throws when it breaks. */
export async function* readFrames(answer: Response): AsyncGenerator<Frame> {
  const frames = createFrameReader();
  for await (const part of answer.body?.pipeThrough(new TextDecoderStream()) ?? [])
    for (const frame of frames.add(part)) if (frame.data !== '') yield frame;
}
