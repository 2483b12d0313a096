/**
 * Passes the chunks of moving volumes from one agent to another. A chunk stays in the memory of the
 * process that received it until the receiver confirms it; nothing is stored. The sender waits for
 * the confirmation, so the slower end sets the pace.
 *
 * With two control planes, sender and receiver can be connected to different processes. Topics
 * inform the other process; the receiver then asks again until the balancer leads it to the process
 * with the chunk:
 *
 *   move:{copy}:here                      a chunk is at one of the processes
 *   move:{copy}:want                      the receiver asked for a chunk
 *   move:{copy}:want:{stream}:{number}    … for this chunk, so it has all chunks before
 */
import type { ChunkAnswer } from '@berth/wire/volume';
import type { Changes, Topic } from '../domain/platform/changes.ts';
import { DomainError } from '../domain/platform/errors.ts';

export type Chunk = { stream: string; number: number; last: boolean; bytes: Buffer };
type Offer = Chunk & { answer: (answer: ChunkAnswer) => void };
type Until = { ms: number; signal: AbortSignal };

export type VolumeChannels = {
  /**
   * Holds a chunk until the receiver has it. Calls `read` when there is room for the chunk. Throws
   * too_many_requests.
   */
  send(copy: string, read: () => Promise<Chunk>, until: Until): Promise<ChunkAnswer>;
  /**
   * Returns the next chunk for a receiver that waits for chunk `number` of `stream`; null: the
   * receiver must ask again.
   */
  take(
    copy: string,
    at: { stream: string | null; number: number },
    until: Until,
  ): Promise<Chunk | null>;
  /** Returns the number of chunks in memory. */
  held(): number;
};

/** Maximum number of chunks in memory: 64 MiB with chunks of 4 MiB. */
const MAX_CHUNKS = 16;

export function createVolumeChannels(
  changes: Pick<Changes, 'notify' | 'on'>,
  max = MAX_CHUNKS,
): VolumeChannels {
  const offers = new Map<string, Offer>();
  let slots = 0;

  function offered(copy: string, chunk: Chunk, { ms, signal }: Until): Promise<ChunkAnswer> {
    const here: Topic = `move:${copy}:here`;
    return new Promise((resolve) => {
      const answer = (given: ChunkAnswer): void => {
        clearTimeout(timer);
        signal.removeEventListener('abort', onAbort);
        for (const off of offs) off();
        if (offers.get(copy) === offer) offers.delete(copy);
        resolve(given);
      };
      const offer: Offer = { ...chunk, answer };
      const onAbort = (): void => answer('wait');
      const timer = setTimeout(onAbort, ms);
      const offs = [
        changes.on(`move:${copy}:want:${chunk.stream}:${chunk.number + 1}`, () => answer('taken')),
        changes.on(`move:${copy}:want`, () => changes.notify(here)),
      ];
      // Replace the chunk whose connection died by the chunk that is sent again.
      offers.get(copy)?.answer('wait');
      offers.set(copy, offer);
      signal.addEventListener('abort', onAbort, { once: true });
      if (signal.aborted) return onAbort();
      changes.notify(here);
    });
  }

  return {
    held: () => offers.size,

    async send(copy, read, until) {
      if (slots >= max)
        throw new DomainError('too_many_requests', 'too many volumes are moving; send it again');
      slots += 1;
      try {
        return await offered(copy, await read(), until);
      } finally {
        slots -= 1;
      }
    },

    async take(copy, { stream, number }, { ms, signal }) {
      const wanted: Topic[] = stream === null ? [] : [`move:${copy}:want:${stream}:${number}`];
      /** Returns the chunk if it is at this process. */
      const look = (): Chunk | undefined => {
        const offer = offers.get(copy);
        if (offer === undefined) return undefined;
        const isSame = offer.stream === stream;
        if (isSame ? offer.number === number : offer.number === 0) return offer;
        // Either the receiver already has this chunk, or it has lost the beginning of the stream.
        offer.answer(isSame && offer.number < number ? 'taken' : 'restart');
        return undefined;
      };
      // Notify first, because this ends the offer of the previous chunk.
      changes.notify(...wanted);
      const offer = look();
      if (offer !== undefined || ms === 0) return offer ?? null;
      return new Promise((resolve) => {
        const done = (): void => {
          clearTimeout(timer);
          off();
          signal.removeEventListener('abort', done);
          // Null means that a different process has the chunk, or that the time is up.
          resolve(look() ?? null);
        };
        const timer = setTimeout(done, ms);
        const off = changes.on(`move:${copy}:here`, done);
        signal.addEventListener('abort', done, { once: true });
        if (signal.aborted) return done();
        changes.notify(`move:${copy}:want`);
      });
    },
  };
}
