/**
 * Estimates the bytes that a pull adds to the disk of the engine: the layers that the newest image
 * of the repository here does not have. A registry tells compressed sizes. The newest image tells
 * how much larger its layers are unpacked; without one, UNPACKED is assumed.
 */
import type { Logger } from '@berth/kit/log';
import { newestFirst } from './old-images.ts';
import { repositoryOf } from '../engine/image-ref.ts';
import type { RegistryApi } from '../registry/api.ts';
import type { Docker } from '../engine/docker.ts';

/** Returns 0 if the size is unknown: the pull says why better than an estimate. */
export type PullSize = (image: string, signal: AbortSignal) => Promise<number>;

/** Common base images are 2 to 3 times as large as their gzip layers. */
const UNPACKED = 2.5;
const MAX_UNPACKED = 20;
/** A pull does not wait longer for an estimate. */
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
