/** The space of the container engine: how much images and build cache use, what of it can go, and the eviction of it. */
import { stat, statfs } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { DiskStep } from '@berth/wire/eviction';
import type { CachedDataset } from '@berth/wire/node';
import type { EvictableImages, ImageCandidate } from './evictable-images.ts';
import type { DockerCli } from './tools/docker-cli.ts';
import { engineUse, type EngineUse, pruneBuildCache } from './tools/engine-use.ts';

export type EngineContents = EngineUse & {
  /** Images that can go, in the order of eviction; none if `disk` is null. */
  candidates: ImageCandidate[];
  /** The disk of the engine’s data folder; null if this machine does not see the folder. `isOwn`: SVC_ROOT is on another disk. */
  disk: { free: number; total: number; isOwn: boolean } | null;
};
export type EngineStep = Exclude<DiskStep<CachedDataset, ImageCandidate>, { kind: 'dataset' }>;
export type EngineSpace = {
  /** The last count; null before the first one, and after one that failed. */
  last(): EngineContents | null;
  /** Rejects if the engine does not answer: what it has is then unknown, which is not the same as nothing. */
  count(signal: AbortSignal): Promise<EngineContents>;
  /** An image was pulled: the last count lacks at most these bytes. */
  grew(bytes: number): void;
  /** Returns false if an image came into use. */
  evict(step: EngineStep, signal: AbortSignal): Promise<boolean>;
};

export function createEngineSpace({
  cli,
  images,
  root,
}: {
  cli: DockerCli;
  images: EvictableImages;
  /** SVC_ROOT. */
  root: string;
}): EngineSpace {
  let last: EngineContents | null = null;
  async function count(signal: AbortSignal): Promise<EngineContents> {
    try {
      const use = await engineUse(cli, signal);
      const disk = use.root === null ? null : await diskOf(use.root, root);
      // An image on a disk that this machine does not see is never evicted, so the registry is not asked about it.
      last = { ...use, candidates: disk === null ? [] : await images.list(signal), disk };
      return last;
    } catch (error) {
      last = null;
      throw error;
    }
  }
  return {
    last: () => last,
    count,
    grew(bytes) {
      if (last !== null) last = { ...last, images: (last.images ?? 0) + bytes };
    },
    async evict(step, signal) {
      if (step.kind === 'image') return images.evict(step.image, signal);
      await pruneBuildCache(cli, step.keep, signal);
      return true;
    },
  };
}

async function diskOf(folder: string, other: string): Promise<EngineContents['disk']> {
  try {
    const [{ dev }, { blocks, bavail, bsize }] = await Promise.all([stat(folder), statfs(folder)]);
    return { free: bavail * bsize, total: blocks * bsize, isOwn: dev !== (await deviceOf(other)) };
  } catch (error) {
    // The agent is in a container without the folder, the engine is on another machine, or the folder is not readable for this user.
    if (['ENOENT', 'EACCES'].includes((error as NodeJS.ErrnoException).code ?? '')) return null;
    throw error;
  }
}

/** SVC_ROOT is created with the first dataset. */
async function deviceOf(path: string): Promise<number> {
  try {
    return (await stat(path)).dev;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT' || path === '/') throw error;
    return deviceOf(dirname(path));
  }
}
