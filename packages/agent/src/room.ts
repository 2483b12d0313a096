/**
 * Keeps this node within its budget, and makes room for a copy, a pull or a build (wire/eviction.ts has the order).
 *
 * Two limits refuse a copy: MAX_STORAGE less what SVC_ROOT holds, and the free bytes of the disk. The budget is tighter, because images and
 * build cache count too; it makes this node evict, but what cannot go (images of running containers) refuses no copy.
 * If the engine is on a disk of its own, MAX_STORAGE limits the datasets, and images and build cache may fill the engine’s disk.
 */
import { mustStay, planDisk, type DiskPlan, type Watermarks } from '@berth/wire/eviction';
import type { CachedDataset } from '@berth/wire/node';
import type { Logger } from '@berth/kit/log';
import { sizeText } from './data/format.ts';
import type { EngineContents, EngineSpace, EngineStep } from './engine-space.ts';
import type { ImageCandidate } from './evictable-images.ts';
import type { Locks } from './locks.ts';
import type { Reservation, StorageMeter } from './storage.ts';
import { TaskFailure } from './tools/failures.ts';

/** The datasets of this node. */
export type DatasetSpace = {
  /** Versions in `refused` count as in use. */
  list(refused: ReadonlySet<string>, recopyable: ReadonlySet<string>): Promise<CachedDataset[]>;
  keyOf(dataset: CachedDataset): string;
  /** Removes mounts that no deployment needs, and returns the keys of versions that the share still has. */
  refresh(signal: AbortSignal): Promise<ReadonlySet<string>>;
  /** Returns the freed bytes; null if it came into use. */
  evict(dataset: CachedDataset, signal: AbortSignal, logLine: Say): Promise<number | null>;
};
type Say = (text: string) => void;
/**
 * Reserves `bytes` on the disk. Throws TaskFailure no_room. It has then evicted nothing, except if versions share files: their eviction
 * frees less than the sum of their sizes, which only shows afterwards.
 */
export type MakeRoom = (bytes: number, signal: AbortSignal, logLine: Say) => Promise<Reservation>;
export type Room = {
  make: MakeRoom;
  /** Evicts down to the low watermark if more than the high one is used, or if less than `wanted` bytes are free on the disk. */
  keep(signal: AbortSignal, options?: KeepOptions): Promise<void>;
};
/** `recount`: the last count of images and build cache is too old. */
export type KeepOptions = { wanted?: number; recount?: boolean };
export type RoomDeps = {
  storage: StorageMeter;
  /** Null on a builder. */
  datasets: DatasetSpace | null;
  /** Null: images and build cache are left alone. */
  engine: EngineSpace | null;
  /** Bytes for images and build cache if the engine has its own disk. Null: that whole disk. */
  engineMax: number | null;
  locks: Locks;
  watermarks: Watermarks;
  log: Logger;
};

type Plan = DiskPlan<CachedDataset, ImageCandidate>;
type Limits = { max: number; budget: number; disk: number };
/** The state of one run. */
type Run = {
  /** Bytes that must be free. */
  wanted: number;
  /** The run is about the engine’s own disk. */
  engineOnly: boolean;
  /** Keys of datasets and names of images that cannot go after all. */
  refused: Set<string>;
  recopyable: ReadonlySet<string>;
  contents: EngineContents | null;
  /** `contents` and `recopyable` are of this run. */
  isFresh: boolean;
  /** The last prune did not make the build cache smaller. */
  cacheIsSpent: boolean;
  hasBegun: boolean;
};
const NONE: ReadonlySet<string> = new Set();
const sum = (all: readonly { bytes: number }[]): number => all.reduce((total, one) => total + one.bytes, 0);

export function createRoom(deps: RoomDeps): Room {
  const { storage, datasets, engine, locks, watermarks, log } = deps;

  const begin = (wanted: number, engineOnly: boolean): Run => ({
    wanted,
    engineOnly,
    refused: new Set(),
    recopyable: NONE,
    contents: engine?.last() ?? null,
    isFresh: false,
    cacheIsSpent: false,
    hasBegun: false,
  });
  async function refresh(run: Run, signal: AbortSignal): Promise<void> {
    run.isFresh = true;
    if (!run.engineOnly && datasets !== null) run.recopyable = await datasets.refresh(signal);
    await recount(run, signal);
  }
  async function recount(run: Run, signal: AbortSignal): Promise<void> {
    if (engine === null) return;
    try {
      run.contents = await engine.count(signal);
    } catch (err) {
      signal.throwIfAborted();
      run.contents = null;
      log.warn({ err }, 'counting images and build cache failed; none of them is evicted');
    }
  }
  async function limitsOf({ engineOnly, contents }: Run, signal: AbortSignal): Promise<Limits> {
    if (!engineOnly) return storage.now(signal);
    const { free, total } = contents?.disk ?? { free: 0, total: 0 };
    const max = Math.min(deps.engineMax ?? total, total);
    return { max, budget: max, disk: free };
  }
  async function plan(run: Run, signal: AbortSignal): Promise<{ plan: Plan; cached: CachedDataset[]; limits: Limits; mayFit: boolean }> {
    const limits = await limitsOf(run, signal);
    const cached = run.engineOnly || datasets === null ? [] : await datasets.list(run.refused, run.recopyable);
    const here = run.contents?.disk?.isOwn === run.engineOnly ? run.contents : null;
    const images = (here?.candidates ?? []).filter(({ name }) => !run.refused.has(name));
    const total = here?.build_cache ?? 0;
    const buildCache = { total, evictable: run.cacheIsSpent ? 0 : Math.min(total, here?.build_cache_unused ?? 0) };
    const [engineBytes, datasetBytes] = [total + (here?.images ?? 0), sum(cached)];
    const ask = (free: number, withEngine = true): Plan =>
      planDisk({
        cached,
        images: withEngine ? images : [],
        buildCache: withEngine ? buildCache : { total: 0, evictable: 0 },
        used: datasetBytes + (withEngine ? engineBytes : 0),
        free,
        wanted: run.wanted,
        max: limits.max,
        hasBegun: run.hasBegun,
        watermarks,
      });
    const within = ask(Math.min(limits.budget - engineBytes, limits.disk));
    const mustFit = ask(Math.min(limits.budget, limits.disk), limits.disk < limits.budget);
    const datasetsFree = sum(cached.filter((c) => !mustStay(c)));
    const mayFit =
      limits.budget + datasetsFree >= run.wanted && limits.disk + datasetsFree + buildCache.evictable + sum(images) >= run.wanted;
    return { plan: within.enough || within.steps.length > 0 ? within : mustFit, cached, limits, mayFit };
  }

  async function evictAll({ plan: { steps } }: { plan: Plan }, run: Run, signal: AbortSignal, logLine: Say): Promise<void> {
    const [first] = steps;
    run.hasBegun = true;
    const cacheBefore = run.contents?.build_cache ?? 0;
    if (first?.kind === 'build_cache') {
      await evictOfEngine(first, run, signal);
      log.info({ keep: first.keep, wanted: run.wanted }, 'build cache pruned');
    }
    for (const step of steps) {
      if (step.kind !== first?.kind || step.kind === 'build_cache') break;
      signal.throwIfAborted();
      if (step.kind === 'image') {
        if (step.image.kept && step !== first) break;
        // An image is tried once: one that is still listed afterwards has come into use.
        run.refused.add(step.image.name);
        if (await evictOfEngine(step, run, signal)) {
          log.info({ image: step.image.name, kept: step.image.kept }, 'image evicted to make room');
          if (step.image.kept) logLine(`evicted the image ${step.image.name}, which was kept for a rollback; a rollback pulls it again`);
        }
      } else if (datasets !== null) {
        const freed = await datasets.evict(step.dataset, signal, logLine);
        if (freed === null) run.refused.add(datasets.keyOf(step.dataset));
        else storage.add(-freed);
      }
    }
    if (first?.kind === 'dataset' || run.contents === null) return;
    // Images and build cache share layers, so only a count tells how much an eviction freed.
    await recount(run, signal);
    if (first?.kind === 'build_cache') run.cacheIsSpent = (run.contents?.build_cache ?? 0) >= cacheBefore;
  }
  async function evictOfEngine(step: EngineStep, run: Run, signal: AbortSignal): Promise<boolean> {
    if (engine === null || run.contents === null) return false;
    try {
      return await engine.evict(step, signal);
    } catch (err) {
      signal.throwIfAborted();
      // If the engine does not answer at all, the count that follows says so. A node may only lack buildx.
      log.warn({ err, kind: step.kind }, 'evicting from the engine failed; will retry after the next task');
      return false;
    }
  }
  async function evictUntilFits(run: Run, signal: AbortSignal, logLine: Say): Promise<void> {
    for (;;) {
      const now = await plan(run, signal);
      const fits = run.wanted <= Math.min(now.limits.budget, now.limits.disk);
      if (!run.isFresh && (now.plan.steps.length > 0 || !fits)) {
        await refresh(run, signal);
        continue;
      }
      if (!fits && !now.mayFit) throw noRoom(run.wanted, now);
      if (now.plan.steps.length === 0) {
        if (fits) return;
        throw noRoom(run.wanted, now);
      }
      await evictAll(now, run, signal, logLine);
      const onlyDatasets = now.plan.steps.every((step) => step.kind === 'dataset');
      // Versions share files, and a shared file is freed with the last of them: compare again with what is free now.
      if (onlyDatasets && run.wanted <= (await storage.now(signal)).free) return;
    }
  }
  /** One budget for all: the second request must see the reservation of the first. */
  async function locked<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    const unlock = await locks.acquire('room on the disk', signal);
    try {
      return await work();
    } finally {
      unlock();
    }
  }
  return {
    make: (bytes, signal, logLine) =>
      locked(signal, async () => {
        await evictUntilFits(begin(bytes, false), signal, logLine);
        return storage.reserve(bytes);
      }),
    keep: (signal, { wanted = 0, recount: isOld = false } = {}) =>
      locked(signal, async () => {
        const toLog: Say = (text) => log.info(text);
        if (isOld) await recount(begin(wanted, false), signal);
        for (const engineOnly of [false, true]) {
          const isApart = engine?.last()?.disk?.isOwn === true;
          if (engineOnly && !isApart) continue;
          const evict = (bytes: number): Promise<void> => evictUntilFits(begin(bytes, engineOnly), signal, toLog);
          const isShort = (error: unknown): error is TaskFailure => error instanceof TaskFailure && error.code === 'no_room';
          await evict(wanted)
            // If all of it cannot be free, as much as possible.
            .catch((error: unknown) => (isShort(error) && wanted > 0 ? evict(0) : Promise.reject(error)))
            .catch((error: unknown) => {
              if (!isShort(error)) throw error;
              log.warn({ reason: error.message }, 'the disk is full, and nothing else can be evicted');
            });
        }
      }),
  };
}

function noRoom(bytes: number, { limits, cached, plan }: { limits: Limits; cached: readonly CachedDataset[]; plan: Plan }): TaskFailure {
  const free = Math.max(0, Math.min(limits.budget, limits.disk));
  const stay = cached.filter(mustStay);
  const evictable = sum(cached) - sum(stay) + sum(plan.steps.filter((step) => step.kind !== 'dataset'));
  return new TaskFailure(
    'no_room',
    `the copy needs ${sizeText(bytes)}; ${sizeText(free)} of ${sizeText(limits.max)} are free, ` +
      `${sizeText(evictable)} could be evicted, ${sizeText(sum(stay))} are in use or kept for the last releases`,
  );
}
