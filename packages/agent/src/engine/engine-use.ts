/**
 * Reads the disk use of the engine's images and build cache, and the engine's data folder; prunes
 * the build cache.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { type Answer, type EngineClient, EngineError } from './engine-client.ts';

type EngineCall = Pick<EngineClient, 'call'>;
type DiskUsage = Answer<'GET /system/df'>;
type ImageSummary = Answer<'GET /images/json'>[number];

/** Disk use of the engine. A size is null if the engine does not report it. */
export type EngineUse = {
  root: string | null;
  images: number | null;
  build_cache: number | null;
  /** Bytes of build cache that neither a build nor an image uses. */
  build_cache_unused: number | null;
};
export type ImageSize = {
  /** Bytes of the layers that only this image has. */
  unique: number;
  /** Names as `repository:tag`; empty for an untagged image. */
  tags: string[];
};

/** The engine sums up the size of each layer, which takes minutes on a full disk. */
const COUNT_MS = 5 * 60_000;
const PRUNE_MS = 10 * 60_000;
/**
 * Engine 20.10 runs one disk count at a time and refuses a second one, for example of a second
 * agent.
 */
const IS_COUNTING = /disk usage operation is already running/i;
const ASK_AGAIN_MS = 2_000;

async function diskUsage(engine: EngineCall, signal: AbortSignal): Promise<DiskUsage> {
  const since = performance.now();
  for (;;) {
    try {
      return await engine.call('GET /system/df', { signal, timeoutMs: COUNT_MS });
    } catch (error) {
      const isRefused = error instanceof EngineError && IS_COUNTING.test(error.reason);
      if (!isRefused || performance.now() - since > COUNT_MS) throw error;
    }
    await sleep(ASK_AGAIN_MS, undefined, { signal });
  }
}

export async function engineUse(engine: EngineCall, signal: AbortSignal): Promise<EngineUse> {
  const { DockerRootDir: root } = await engine.call('GET /info', { signal });
  const { LayersSize, BuildCache } = await diskUsage(engine, signal);
  // Skip shared records: their bytes are already counted in a different record or in an image.
  const records = BuildCache?.filter(({ Shared }) => Shared !== true);
  const bytesOf = (some: typeof records): number | null =>
    some?.reduce((sum, { Size = 0 }) => sum + Size, 0) ?? null;
  return {
    root: root || null,
    images: LayersSize ?? null,
    build_cache: bytesOf(records),
    build_cache_unused: bytesOf(records?.filter(({ InUse }) => InUse !== true)),
  };
}

/**
 * Returns the sizes by image id. Throws if the engine does not report them: an image of unknown
 * size must not count as small.
 */
export async function imageSizes(
  engine: EngineCall,
  signal: AbortSignal,
): Promise<Map<string, ImageSize>> {
  const { Images: images } = await diskUsage(engine, signal);
  if (!Array.isArray(images)) throw new Error('the engine lists no sizes of images');
  return new Map(
    images.map((image) => [image.Id, { unique: uniqueBytes(image), tags: tagsOf(image) }]),
  );
}
/** The engine sends -1 for a size that it does not report. */
function uniqueBytes({ Id, Size, SharedSize }: ImageSummary): number {
  // Podman leaves out the fields.
  if (!(Size >= 0 && SharedSize >= 0))
    throw new Error(`the engine does not tell the size of image ${Id}`);
  return Size - SharedSize;
}
const tagsOf = ({ RepoTags }: ImageSummary): string[] =>
  (RepoTags ?? []).filter((tag) => !tag.endsWith(':<none>'));

/**
 * Caches imageSizes: asks the engine again only after images or their names changed, because the
 * engine reads every layer of every image to answer.
 */
export function createImageSizes(
  engine: EngineCall,
): (signal: AbortSignal) => Promise<ReadonlyMap<string, ImageSize>> {
  let last: { names: string; sizes: ReadonlyMap<string, ImageSize> } | null = null;
  return async (signal) => {
    const images = await engine.call('GET /images/json', { signal });
    const names = images
      .map((image) => `${image.Id} ${tagsOf(image).sort().join(' ')}`)
      .sort()
      .join('\n');
    if (last?.names === names) return last.sizes;
    last = { names, sizes: await imageSizes(engine, signal) };
    return last.sizes;
  };
}

/**
 * Removes build cache, least recently used first, until about `keep` bytes are left. Keeps records
 * of running builds. Returns false if it removed nothing. The engine also removes records that
 * share their bytes with an image, which frees no space, so the caller can repeat the call.
 */
export async function pruneBuildCache(
  engine: EngineCall,
  keep: number,
  signal: AbortSignal,
): Promise<boolean> {
  const { SpaceReclaimed = 0 } = await engine.call('POST /build/prune', {
    query: { all: true, 'keep-storage': Math.floor(keep) },
    signal,
    timeoutMs: PRUNE_MS,
  });
  return SpaceReclaimed > 0;
}
