/**
 * Removes old images from this node, in the background after each task. The registry still has
 * them.
 *
 * - For each project, the newest KEEP_RELEASES images stay.
 * - If the project was deleted, all its images are removed.
 * - If the node has no container of the project, all its images are removed a week after the newest
 *   was built.
 *
 * An image is never removed by force, and stays while a container uses it or a task protects it.
 * eviction.ts removes more images when the disk is full.
 */
import type { Logger } from '@berth/kit/log';
import { createRefCounts } from '@berth/kit/ref-count';
import type { Docker, Image } from '../engine/docker.ts';
import { repositoryOf } from '../engine/image-ref.ts';

export type Images = {
  /**
   * Protects `ref` from removal until the returned function is called. A removal that has already
   * begun continues: wait for `removed`.
   */
  protect(ref: string): () => void;
  isProtected(ref: string): boolean;
  /** Resolves when no removal is running. */
  removed(): Promise<void>;
  /**
   * Removes all these references of one image. Returns false if a task protects one of them, or if
   * the engine refuses.
   */
  remove(refs: readonly string[]): Promise<boolean>;
  /**
   * Schedules a clean-up, which several requests share. `repository` is `{registry}/{project}`; a
   * name without a registry is ignored.
   */
  cleanLater(repository: string): void;
  /** Schedules the removal of all images of a deleted project; otherwise like `cleanLater`. */
  forgetLater(repository: string): void;
  /** Schedules a clean-up of every repository of this registry; otherwise like `cleanLater`. */
  sweepLater(registry: string): void;
  /** Runs the scheduled clean-ups at once. */
  settle(): Promise<void>;
  /** Drops the scheduled clean-ups. Resolves when the running removal has finished. */
  stop(): Promise<void>;
};

/** Maximum number of removals per run and repository. The next run removes the rest. */
const MAX_REMOVED = 50;
/** Delay in ms that lets the switch to the new version finish first, which needs the CPU. */
const DELAY_MS = 20_000;
/**
 * If a project has no container on this node, its images stay for this many seconds after the
 * newest was built.
 */
const ABSENT_S = 7 * 86_400;

export function createImages({
  delayMs = DELAY_MS,
  onCleaned = async () => undefined,
  ...deps
}: {
  docker: Docker;
  keepNewest: () => number;
  log: Logger;
  delayMs?: number;
  /** Called after each clean-up. */
  onCleaned?: () => Promise<void>;
}): Images {
  const protectedRefs = createRefCounts();
  const waiting = new Set<string>();
  const forgotten = new Set<string>();
  const registries = new Set<string>();
  let running: Promise<void> | null = null;
  let timer: NodeJS.Timeout | undefined;
  let stopped = false;
  /** Only one removal runs at a time. A task waits for it before it checks for its image. */
  let removing: Promise<unknown> = Promise.resolve();

  function remove(refs: readonly string[]): Promise<boolean> {
    const isProtected = (): boolean => refs.some(protectedRefs.has);
    const removal = removing.then(async () => {
      for (const ref of refs) {
        // Check before each reference: a task might have begun to protect it.
        if (isProtected() || !(await deps.docker.removeImageRef(ref))) return false;
      }
      return true;
    });
    removing = removal.catch(() => undefined);
    return removal;
  }
  async function clean(repository: string): Promise<void> {
    const [images, inUse] = [await deps.docker.images(repository), await deps.docker.imagesInUse()];
    const keepNewest =
      forgotten.delete(repository) || isAbsent(images, inUse) ? 0 : deps.keepNewest();
    let removed = 0;
    for (const ref of removableRefs(images, { keepNewest, inUse, maxRefs: MAX_REMOVED })) {
      if (stopped) return;
      if (await remove([ref])) removed += 1;
    }
    if (removed > 0) deps.log.info({ repository, removed }, 'old images removed');
  }
  async function sweep(registry: string): Promise<void> {
    const images = await deps.docker.images(`${registry}/*`);
    for (const repository of new Set(images.flatMap((i) => i.refs.map(repositoryOf))))
      waiting.add(repository);
  }
  async function work(): Promise<void> {
    for (const registry of registries) {
      registries.delete(registry);
      await sweep(registry).catch((error: unknown) =>
        deps.log.warn({ err: error, registry }, 'listing images failed; will retry'),
      );
    }
    for (const repository of waiting) {
      waiting.delete(repository);
      await clean(repository).catch((error: unknown) =>
        deps.log.warn(
          { err: error, repository },
          'removing old images failed; will retry after the next task',
        ),
      );
    }
  }
  async function start(): Promise<void> {
    clearTimeout(timer);
    timer = undefined;
    while (!stopped && (waiting.size > 0 || registries.size > 0 || running !== null))
      await (running ??= work()
        .then(() => (stopped ? undefined : onCleaned()))
        .finally(() => (running = null)));
  }
  const later = (): void => {
    if (!stopped) timer ??= setTimeout(() => void start(), delayMs).unref();
  };
  return {
    protect: protectedRefs.add,
    isProtected: protectedRefs.has,
    remove,
    async removed() {
      await removing;
    },
    cleanLater(repository) {
      if (!namesRegistry(repository)) return;
      waiting.add(repository);
      later();
    },
    forgetLater(repository) {
      if (!namesRegistry(repository)) return;
      forgotten.add(repository);
      waiting.add(repository);
      later();
    },
    sweepLater(registry) {
      if (!namesRegistry(`${registry}/`)) return;
      registries.add(registry);
      later();
    },
    settle: start,
    async stop() {
      stopped = true;
      clearTimeout(timer);
      await running;
    },
  };
}

/**
 * Tells whether the name begins with a registry's address, by the engine’s own rule, and contains
 * no pattern. Other names belong to images that are not Berth's, and the engine treats an empty
 * name as all images of the machine.
 */
const namesRegistry = (repository: string): boolean =>
  /^(localhost|[^/*?[]*[.:][^/*?[]*)\/[^*?[]*$/.test(repository);

/**
 * Tells whether no container uses any of the images and the newest is a week old: then no task is
 * about to run one.
 */
export const isAbsent = (images: readonly Image[], inUse: ReadonlySet<string>): boolean =>
  !images.some((i) => inUse.has(i.id)) &&
  Math.max(0, ...images.map((i) => i.created)) < Date.now() / 1000 - ABSENT_S;

export const newestFirst = (images: readonly Image[]): Image[] =>
  images.toSorted((a, b) => b.created - a.created);

/**
 * Returns the references of removable images: unused, beyond the `keepNewest` newest ones, oldest
 * first.
 */
export function removableRefs(
  images: readonly Image[],
  {
    keepNewest,
    inUse,
    maxRefs,
  }: { keepNewest: number; inUse: ReadonlySet<string>; maxRefs: number },
): string[] {
  return newestFirst(images)
    .slice(keepNewest)
    .filter((image) => !inUse.has(image.id))
    .toReversed()
    .flatMap((image) => image.refs)
    .slice(0, maxRefs);
}
