/**
 * A container engine in memory that keeps what one container prints, as `docker logs --timestamps`
 * shows it.
 */
import type { Docker, ReadLogOptions } from '../packages/agent/src/engine/docker.ts';

type Stream = 'stdout' | 'stderr';

/** `clockMs`: how far the clock of the node is ahead. */
export function createLogEngine(clockMs = 0) {
  const log: { at: string; stream: Stream; text: Buffer }[] = [];
  const following = new Set<ReadLogOptions>();
  /** Nanoseconds: the engine never gives two lines of a stream the same time. */
  let clock = 0n;
  let follows = 0;
  const chunkOf = ({ at, text }: { at: string; text: Buffer }): Buffer =>
    Buffer.concat([Buffer.from(`${at} `), text, Buffer.from('\n')]);
  const logs: Docker['logs'] = async (_id, options) => {
    const lines = log.slice(
      options.tail === null ? 0 : options.tail === 0 ? log.length : -options.tail,
    );
    // The engine leaves out the lines before the first one that is not older.
    const first = lines.findIndex(({ at }) => options.since === null || at >= options.since);
    for (const line of first === -1 ? [] : lines.slice(first))
      options.onChunk(chunkOf(line), line.stream);
    if (!options.follow) return null;
    follows += 1;
    following.add(options);
    await new Promise<void>((resolve) =>
      options.signal.addEventListener('abort', () => resolve(), { once: true }),
    );
    following.delete(options);
    return null;
  };
  return {
    logs,
    following,
    /** Number of readers that began to follow. */
    follows: () => follows,
    /** The clock of the node, in ms. */
    now: () => Date.now() + clockMs,
    print(text: string | Buffer, stream: Stream = 'stdout'): void {
      const now = BigInt(Date.now() + clockMs) * 1_000_000n;
      clock = now > clock ? now : clock + 1n;
      const at = new Date(Number(clock / 1_000_000n))
        .toISOString()
        .replace('Z', `${String(clock % 1_000_000n).padStart(6, '0')}Z`);
      const line = { at, stream, text: Buffer.from(text) };
      log.push(line);
      for (const options of following) options.onChunk(chunkOf(line), stream);
    },
  };
}
