/**
 * Images of a project beyond its newest few are removed from this node after each of its tasks. Never by force, never one
 * that a container was made from, never one that a task is about to run. Build cache is not touched.
 */
import type { Logger } from '@berth/kit/log';
import type { Docker, Image } from './tools/docker.ts';

export type Images = {
  /** Keeps `ref` from being removed until the returned function is called. */
  hold(ref: string): () => void;
  /** Soon and once, however often it is asked for. `repository` is `{registry}/{project}`. */
  cleanLater(repository: string): void;
  /** Does at once what was asked for. */
  settle(): Promise<void>;
  /** Forgets what was asked for; resolves when the removal under way is over. */
  stop(): Promise<void>;
};

/** So many a run: the rest goes next time. */
const MAX_REMOVED = 50;
/** Long enough that the switch to the new version is over, which wants the processor for itself. */
const DELAY_MS = 20_000;

export function createImages({ delayMs = DELAY_MS, ...deps }: { docker: Docker; keep: number; log: Logger; delayMs?: number }): Images {
  const held = new Map<string, number>();
  const waiting = new Set<string>();
  let running: Promise<void> | null = null;
  let timer: NodeJS.Timeout | undefined;
  let stopped = false;

  async function clean(repository: string): Promise<void> {
    const [images, inUse] = [await deps.docker.images(repository), await deps.docker.imagesInUse()];
    let removed = 0;
    for (const ref of spare(images, { keep: deps.keep, inUse, maxRefs: MAX_REMOVED })) {
      if (stopped) return;
      // Asked again for each: a task may have taken hold of it meanwhile.
      if (held.has(ref)) continue;
      if (await deps.docker.removeImageRef(ref)) removed += 1;
    }
    if (removed > 0) deps.log.info({ repository, removed }, 'old images removed');
  }
  async function work(): Promise<void> {
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
    while (!stopped && (waiting.size > 0 || running !== null)) await (running ??= work().finally(() => (running = null)));
  }
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
      if (!stopped) timer ??= setTimeout(() => void start(), delayMs).unref();
    },
    settle: start,
    async stop() {
      stopped = true;
      clearTimeout(timer);
      await running;
    },
  };
}

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
