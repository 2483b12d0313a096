/**
 * Finds the images that this node can remove to make room. An image stays in each of these cases:
 * - a container was created from it, or a task protects it;
 * - it also has a name that is not Berth's, so that its removal would free no space;
 * - a kept release needs it and the registry does not have it: this node has the only copy.
 */
import type { EvictableImage } from '@berth/wire/node';
import { imageOrder } from '@berth/wire/eviction';
import type { Logger } from '@berth/kit/log';
import { type Images, isAbsent, newestFirst } from './old-images.ts';
import { repositoryOf } from '../engine/image-ref.ts';
import type { Docker, Image } from '../engine/docker.ts';
import type { ImageSize } from '../engine/engine-use.ts';

export type ImageCandidate = EvictableImage & { refs: readonly string[] };
export type EvictableImages = {
  /** Returns the evictable images in order. Rejects if the engine does not answer. */
  list(signal: AbortSignal): Promise<ImageCandidate[]>;
  /** Evicts an image. Returns false if the image is now in use or the only copy. */
  evict(image: ImageCandidate, signal: AbortSignal): Promise<boolean>;
};
export type EvictableImagesDeps = {
  docker: Pick<Docker, 'images' | 'imagesInUse'>;
  images: Pick<Images, 'isProtected' | 'remove'>;
  sizes: (signal: AbortSignal) => Promise<ReadonlyMap<string, ImageSize>>;
  keepNewest: () => number;
  /** Returns the address of the registry; empty while it is unknown. */
  registry: () => string;
  /** Tells whether the registry has the image. Rejects if the registry does not answer. */
  registryHas: (repository: string, digest: string, signal: AbortSignal) => Promise<boolean>;
  log: Logger;
};

/** Maximum age in ms of the registry's answer in a report. An eviction asks the registry again. */
const ASKED_MS = 3_600_000;

export function createEvictableImages(deps: EvictableImagesDeps): EvictableImages {
  const { docker, images, registry, log } = deps;
  const seen = new Map<string, number>();

  /**
   * Tells whether the registry has the image in each of its repositories. Uses answers that are at
   * most `maxAgeMs` old.
   */
  async function isInRegistry(
    refs: readonly string[],
    maxAgeMs: number,
    signal: AbortSignal,
  ): Promise<boolean> {
    const digests = refs.filter((ref) => ref.includes('@'));
    for (const ref of digests) {
      if (performance.now() - (seen.get(ref) ?? Number.NEGATIVE_INFINITY) < maxAgeMs) continue;
      seen.delete(ref);
      // The path after the host is the name in the registry’s API.
      const [repository = '', digest = ''] = ref.slice(ref.indexOf('/') + 1).split('@');
      if (!(await deps.registryHas(repository, digest, signal))) return false;
      seen.set(ref, performance.now());
    }
    return digests.length > 0;
  }
  return {
    async list(signal) {
      if (registry() === '') return [];
      const [all, inUse] = [await docker.images(`${registry()}/*`), await docker.imagesInUse()];
      if (all.length === 0) return [];
      const sizes = await deps.sizes(signal);
      const needed = neededImages(all, { keepNewest: deps.keepNewest(), inUse });
      const candidates: ImageCandidate[] = [];
      let answers = true;
      for (const image of all) {
        const size = sizes.get(image.id);
        if (inUse.has(image.id) || image.refs.some(images.isProtected) || size === undefined)
          continue;
        if (size.tags.some((tag) => !tag.startsWith(`${registry()}/`))) continue;
        const kept = needed.has(image.id);
        if (kept && !answers) continue;
        const mayGo =
          !kept ||
          (await isInRegistry(image.refs, ASKED_MS, signal).catch((err: unknown) => {
            signal.throwIfAborted();
            answers = false;
            log.info(
              { err },
              'asking the registry for the images of kept releases failed; all of them stay',
            );
            return false;
          }));
        if (!mayGo) continue;
        const created_at = new Date(image.created * 1000).toISOString();
        candidates.push({
          name: nameOf(image),
          bytes: size.unique,
          created_at,
          kept,
          refs: image.refs,
        });
      }
      return imageOrder(candidates);
    },
    async evict(image, signal) {
      if (image.kept && !(await isInRegistry(image.refs, 0, signal))) return false;
      return images.remove(image.refs);
    },
  };
}

/**
 * Returns the ids of images that a kept release needs in any of their repositories: two projects
 * can share one image.
 */
export function neededImages(
  all: readonly Image[],
  { keepNewest, inUse }: { keepNewest: number; inUse: ReadonlySet<string> },
): Set<string> {
  const repositories = new Map<string, Set<Image>>();
  for (const image of all)
    for (const ref of image.refs)
      repositories.set(
        repositoryOf(ref),
        (repositories.get(repositoryOf(ref)) ?? new Set()).add(image),
      );
  return new Set(
    [...repositories.values()].flatMap((of) =>
      isAbsent([...of], inUse)
        ? []
        : newestFirst([...of]).flatMap((image, i) => (i < keepNewest ? [image.id] : [])),
    ),
  );
}

/** Prefers the tag, which tells people more than the digest. */
const nameOf = ({ refs, id }: Image): string =>
  refs.find((ref) => !ref.includes('@')) ?? refs[0] ?? id;
