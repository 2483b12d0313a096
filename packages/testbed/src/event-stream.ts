/** Reads event streams of the control plane. Berth writes `\n` only, and one line of data in each frame. */

export type Frame = { event: string; id: string; data: string };

/** Yields each frame with data. Ends with the stream, and throws when it breaks. */
export async function* readFrames(answer: Response): AsyncGenerator<Frame> {
  let rest = '';
  for await (const part of answer.body?.pipeThrough(new TextDecoderStream()) ?? []) {
    const blocks = (rest + part).split('\n\n');
    rest = blocks.pop() ?? '';
    for (const block of blocks) {
      const field = (name: string): string => new RegExp(`^${name}: (.*)$`, 'm').exec(block)?.[1] ?? '';
      if (field('data') !== '') yield { event: field('event'), id: field('id'), data: field('data') };
    }
  }
}
