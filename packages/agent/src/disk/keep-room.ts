/** Connects tasks and background work to the disk budget (eviction.ts). */
import type { Logger } from '@berth/kit/log';
import type { EngineSpace } from './engine-space.ts';
import type { KeepOptions, Room } from './eviction.ts';
import type { PullSize } from './pull-size.ts';

/** Keeps the disk within its budget. Rejects only with the signal’s reason. */
export type KeepRoom = (signal: AbortSignal, options?: KeepOptions) => Promise<void>;
/** A running pull. */
export type ExpectedPull = {
  /** Bytes that the pull is about to add; 0 if unknown. */
  bytes: number;
  pulled(): Promise<void>;
  release(): void;
};
/** Estimates and reserves the bytes that a pull is about to add. */
export type ExpectPull = (image: string, signal: AbortSignal) => Promise<ExpectedPull>;

export type RoomKeeper = {
  keep: KeepRoom;
  /** Evicts in the background. `recount`: the last count of images is too old. */
  keepLater(recount: boolean): Promise<void>;
  /** Sets the room. Before this call, the functions of this object have no effect. */
  use(room: Pick<Room, 'keep'>): void;
  /** Stops the background evictions. */
  stop(): void;
};

export function createRoomKeeper(log: Logger): RoomKeeper {
  let keptRoom: Pick<Room, 'keep'> | null = null;
  const stopping = new AbortController();
  const keep: KeepRoom = async (signal, options) => {
    await keptRoom?.keep(signal, options).catch((err: unknown) => {
      signal.throwIfAborted();
      log.warn(
        { err },
        'keeping the disk within its budget failed; will retry after the next task',
      );
    });
  };
  return {
    keep,
    keepLater: (recount) => keep(stopping.signal, { recount }).catch(() => undefined),
    use: (room) => void (keptRoom = room),
    stop: () => stopping.abort(),
  };
}

export type ExpectPullDeps = {
  engine: Pick<EngineSpace, 'reserve' | 'grew'>;
  pullSize: PullSize;
  /** Returns the size of an image on the engine in bytes. */
  imageSize: (image: string, signal: AbortSignal) => Promise<number | null>;
};

export const createExpectPull =
  ({ engine, pullSize, imageSize }: ExpectPullDeps): ExpectPull =>
  async (image, signal) => {
    const bytes = await pullSize(image, signal);
    const release = engine.reserve(bytes);
    return {
      bytes,
      release,
      async pulled() {
        // The image can share layers with images that were already here, so it might have added
        // less than its size.
        engine.grew(bytes || ((await imageSize(image, signal)) ?? 0));
      },
    };
  };
