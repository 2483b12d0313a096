/**
 * Estimates the bytes that a pull adds to the engine's disk: the layers that the repository's
 * newest local image does not have. The registry reports compressed sizes. The newest local image
 * shows the ratio of unpacked to compressed size; if there is none, UNPACKED is assumed.
 */
import type { Logger } from '@berth/kit/log';
import { newestFirst } from './old-images.ts';
import { repositoryOf } from '../engine/image-ref.ts';
import type { RegistryApi } from '../registry/api.ts';
import type { Docker } from '../engine/docker.ts';

/** Returns the estimate in bytes; 0 if unknown: the pull itself then reports the problem better. */
export type PullSize = (image: string, signal: AbortSignal) => Promise<number>;

/** Assumed ratio of unpacked to gzip size: 2 to 3 for common base images. */
const UNPACKED = 2.5;
const MAX_UNPACKED = 20;
/** Maximum time in ms that a pull waits for an estimate. */
const LIMIT_MS = 5_000;

export function createPullSize(deps: {
  docker: Pick<Docker, 'images' | 'imageSize'>;
  layersOf: RegistryApi['layersOf'];
  log: Logger;
}): PullSize {
  const { docker, layersOf, log } = deps;
  const bytesOf = (layers: readonly { size: number }[]): number =>
    layers.reduce((sum, { size }) => sum + size, 0);

  return async (image, signal) => {
    const limited = AbortSignal.any([signal, AbortSignal.timeout(LIMIT_MS)]);
    try {
      const repository = repositoryOf(image);
      const path = repository.slice(repository.indexOf('/') + 1);
      const referenceOf = (ref: string): string => ref.slice(repository.length + 1);
      const [layers, images] = await Promise.all([
        layersOf(path, referenceOf(image), limited),
        docker.images(repository),
      ]);
      if (layers === null) return 0;
      const newest = newestFirst(images)[0]?.refs.find((ref) => ref.startsWith(`${repository}@`));
      const here =
        newest === undefined
          ? null
          : await layersOf(path, referenceOf(newest), limited).catch(() => null);
      const size = newest === undefined ? null : await docker.imageSize(newest, limited);
      const had = new Set(here?.map(({ digest }) => digest));
      const ratio =
        here === null || size === null || bytesOf(here) === 0 ? UNPACKED : size / bytesOf(here);
      return Math.round(
        bytesOf(layers.filter(({ digest }) => !had.has(digest))) *
          Math.min(MAX_UNPACKED, Math.max(1, ratio)),
      );
    } catch (err) {
      signal.throwIfAborted();
      log.info(
        { err, image },
        'the registry does not tell the size of the image; pulling without making room first',
      );
      return 0;
    }
  };
}
