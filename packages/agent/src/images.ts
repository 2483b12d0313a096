/**
 * Images of a project beyond its newest few are removed from this node after each of its tasks; all of them when the project was
 * deleted, or a week after the newest was built where no container of it is here: the registry still has them. Never by force, never
 * one that a container was made from, never one that a task is about to run. Build cache is not touched.
 */
import type { Logger } from '@berth/kit/log';
import type { Docker, Image } from './tools/docker.ts';

export type Images = {
  /** Keeps `ref` from being removed until the returned function is called. */
  hold(ref: string): () => void;
  /** Soon and once, however often it is asked for. `repository` is `{registry}/{project}`. */
  cleanLater(repository: string): void;
  /** All images of a project that was deleted; otherwise as `cleanLater`. */
  forgetLater(repository: string): void;
  /** Every repository of this registry, as `cleanLater`. */
  sweepLater(registry: string): void;
  /** Does at once what was asked for. */
  settle(): Promise<void>;
  /** Forgets what was asked for; resolves when the removal under way is over. */
  stop(): Promise<void>;
};

/** So many a run: the rest goes next time. */
const MAX_REMOVED = 50;
/** Long enough that the switch to the new version is over, which wants the processor for itself. */
const DELAY_MS = 20_000;
/** On a node that runs nothing of a project its images stay for so long after the newest was built. */
const ABSENT_S = 7 * 86_400;

export function createImages({ delayMs = DELAY_MS, ...deps }: { docker: Docker; keep: number; log: Logger; delayMs?: number }): Images {
  const held = new Map<string, number>();
  const waiting = new Set<string>();
  const forgotten = new Set<string>();
  const registries = new Set<string>();
  let running: Promise<void> | null = null;
  let timer: NodeJS.Timeout | undefined;
  let stopped = false;

  async function clean(repository: string): Promise<void> {
    const [images, inUse] = [await deps.docker.images(repository), await deps.docker.imagesInUse()];
    const keep = forgotten.delete(repository) || isAbsent(images, inUse) ? 0 : deps.keep;
    let removed = 0;
    for (const ref of spare(images, { keep, inUse, maxRefs: MAX_REMOVED })) {
      if (stopped) return;
      // Asked again for each: a task may have taken hold of it meanwhile.
      if (held.has(ref)) continue;
      if (await deps.docker.removeImageRef(ref)) removed += 1;
    }
    if (removed > 0) deps.log.info({ repository, removed }, 'old images removed');
  }
  async function sweep(registry: string): Promise<void> {
    const images = await deps.docker.images(`${registry}/*`);
    for (const repository of new Set(images.flatMap((i) => i.refs.map(repositoryOf)))) waiting.add(repository);
  }
  async function work(): Promise<void> {
    for (const registry of registries) {
      registries.delete(registry);
      await sweep(registry).catch((error: unknown) => deps.log.warn({ err: error, registry }, 'images could not be listed; will retry'));
    }
    for (const repository of waiting) {
      waiting.delete(repository);
      await clean(repository).catch((error: unknown) =>
        deps.log.warn({ err: error, repository }, 'old images could not be removed; tried again after the next task'),
      );
    }
  }
  async function start(): Promise<void> {
    clearTimeout(timer);
    timer = undefined;
    while (!stopped && (waiting.size > 0 || registries.size > 0 || running !== null))
      await (running ??= work().finally(() => (running = null)));
  }
  const later = (): void => {
    if (!stopped) timer ??= setTimeout(() => void start(), delayMs).unref();
  };
  return {
    hold(ref) {
      held.set(ref, (held.get(ref) ?? 0) + 1);
      return () => {
        const left = (held.get(ref) ?? 1) - 1;
        if (left > 0) held.set(ref, left);
        else held.delete(ref);
      };
    },
    cleanLater(repository) {
      waiting.add(repository);
      later();
    },
    forgetLater(repository) {
      forgotten.add(repository);
      waiting.add(repository);
      later();
    },
    sweepLater(registry) {
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

/** No container was made from any of them, and the newest is a week old: nothing here is about to run one. */
const isAbsent = (images: readonly Image[], inUse: ReadonlySet<string>): boolean =>
  !images.some((i) => inUse.has(i.id)) && Math.max(0, ...images.map((i) => i.created)) < Date.now() / 1000 - ABSENT_S;

/** What may go: references of the images beyond the newest `keep` that no container uses, oldest first. */
export function spare(
  images: readonly Image[],
  { keep, inUse, maxRefs }: { keep: number; inUse: ReadonlySet<string>; maxRefs: number },
): string[] {
  return [...images]
    .sort((a, b) => b.created - a.created)
    .slice(keep)
    .filter((image) => !inUse.has(image.id))
    .toReversed()
    .flatMap((image) => image.refs)
    .slice(0, maxRefs);
}

/** `{registry}/{project}` of `{registry}/{project}:{tag}` or `…@sha256:…`; a registry's port is no tag. */
export function repositoryOf(ref: string): string {
  const withoutDigest = ref.split('@')[0] ?? ref;
  const slash = withoutDigest.lastIndexOf('/');
  const colon = withoutDigest.indexOf(':', slash + 1);
  return colon === -1 ? withoutDigest : withoutDigest.slice(0, colon);
}
