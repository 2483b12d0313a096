/**
 * Decides which data a node evicts to keep its budget (MAX_STORAGE) and to make room. Datasets,
 * images and build cache share the budget. The order is by the cost of getting the data back,
 * cheapest first:
 *
 *   1. build cache beyond a floor, least recently used first          the next build takes longer
 *   2. images that no kept release needs, oldest first                nobody needs them
 *   3. datasets that no container and no kept release pins, LRU       the contract requires this order
 *   4. the rest of the build cache
 *   5. images of kept releases that the registry still has            a rollback pulls them again
 *   6. datasets of kept releases that the share still has             a rollback copies them again
 *
 * Steps 1 to 3 evict down to the low watermark, steps 4 and 5 to the high watermark, and step 6
 * only as far as needed. Steps 4 to 6 happen only if they free enough. From step 3 on, the
 * watermarks apply to the budget minus the images and build cache that cannot be evicted: otherwise
 * large running images would repeatedly evict all datasets of the node. Running images, mounted
 * datasets, volumes and the only copy of a version are never evicted. The module is pure: the agent
 * uses it to evict, and the control plane to show the same result in advance.
 */
import type { CachedDataset, EvictableImage } from './node.ts';

/**
 * Fractions of the usable storage. Eviction starts when usage exceeds `high` and continues down to
 * `low`, so that a full disk does not cause an eviction for each small request. Space that other
 * programs use on the same disk does not count as usable storage; otherwise their growth would
 * evict everything on the node.
 */
export type Watermarks = { high: number; low: number };
export const WATERMARKS: Watermarks = { high: 0.9, low: 0.8 };

/** Fraction of the budget that the build cache keeps until step 4. */
export const BUILD_CACHE_FLOOR = 0.1;

export type EvictionQuestion<C extends CachedDataset = CachedDataset> = {
  cached: readonly C[];
  /** Bytes that are free now. */
  free: number;
  /** Bytes that must be free. */
  wanted: number;
  /** Bytes of storage in total. */
  max: number;
  watermarks?: Watermarks;
};
export type Eviction<C extends CachedDataset = CachedDataset> = {
  evict: C[];
  freed: number;
  /** Bytes that cannot be evicted. */
  pinned: number;
  /** True if `wanted` bytes are free after the eviction. */
  enough: boolean;
};

/**
 * Input of an eviction of datasets, images and build cache. `free` is negative if the usage exceeds
 * the budget.
 */
export type DiskQuestion<
  C extends CachedDataset = CachedDataset,
  I extends EvictableImage = EvictableImage,
> = EvictionQuestion<C> & {
  /** Images that can be evicted. */
  images: readonly I[];
  /** `total`: bytes of the build cache. `evictable`: bytes of it that no build uses. */
  buildCache: { total: number; evictable: number };
  /** Bytes of datasets, images and build cache, evictable or not. */
  used: number;
  /** Whether an eviction is in progress, which continues down to the low watermark. */
  hasBegun?: boolean;
};
export type DiskStep<
  C extends CachedDataset = CachedDataset,
  I extends EvictableImage = EvictableImage,
> =
  /** `keep`: bytes of build cache that remain. */
  | { kind: 'build_cache'; bytes: number; keep: number; isNeeded: boolean }
  | { kind: 'image'; bytes: number; image: I }
  | { kind: 'dataset'; bytes: number; dataset: C };
export type DiskPlan<
  C extends CachedDataset = CachedDataset,
  I extends EvictableImage = EvictableImage,
> = {
  steps: DiskStep<C, I>[];
  freed: number;
  enough: boolean;
};

/**
 * Returns the unpinned datasets, least recently used first. The order has no ties, so that agent
 * and control plane agree on it.
 */
export const evictionOrder = <C extends CachedDataset>(cached: readonly C[]): C[] =>
  oldestFirst(cached.filter((c) => c.pinned !== true));

const oldestFirst = <C extends CachedDataset>(cached: readonly C[]): C[] =>
  cached.toSorted(
    (a, b) =>
      Date.parse(a.last_used_at) - Date.parse(b.last_used_at) ||
      compareText(a.dataset_id, b.dataset_id) ||
      // Evict the older version of a dataset before the newer one.
      a.version - b.version,
  );
/** Returns the images in the order of eviction. */
export const imageOrder = <I extends EvictableImage>(images: readonly I[]): I[] =>
  images.toSorted(
    (a, b) =>
      Number(a.kept) - Number(b.kept) ||
      Date.parse(a.created_at) - Date.parse(b.created_at) ||
      compareText(a.name, b.name),
  );

/**
 * Returns whether a dataset is never evicted, because it is mounted or is the only copy of its
 * version.
 */
export const mustStay = (c: CachedDataset): boolean => c.pinned === true && c.recopyable !== true;

/** Compares by UTF-16 units, so that agent and control plane agree independent of their locales. */
function compareText(a: string, b: string): -1 | 0 | 1 {
  if (a === b) return 0;
  return a < b ? -1 : 1;
}
const sum = (all: readonly { bytes: number }[]): number =>
  all.reduce((total, one) => total + one.bytes, 0);

export function planDisk<C extends CachedDataset, I extends EvictableImage>(
  question: DiskQuestion<C, I>,
): DiskPlan<C, I> {
  const {
    cached,
    images,
    buildCache,
    free,
    wanted,
    max,
    used,
    hasBegun = false,
    watermarks = WATERMARKS,
  } = question;
  const share = Math.max(0, Math.min(max, free + used));
  const usedThen = share - free + wanted;
  const isFull = usedThen > (hasBegun ? watermarks.low : watermarks.high) * share || free < wanted;
  /** Bytes to free so that `wanted` bytes fit, and to reach the low watermark. */
  const [toFit, toLow] = [
    wanted - free,
    isFull ? Math.max(usedThen - watermarks.low * share, wanted - free) : 0,
  ];
  const ordered = imageOrder(images);
  const steps: DiskStep<C, I>[] = [];
  let freed = 0;
  let cacheLeft = buildCache.evictable;
  const take = (step: DiskStep<C, I>): void => {
    steps.push(step);
    freed += step.bytes;
  };
  const takeCache = (most: number, target: number, isNeeded: boolean): void => {
    const bytes = Math.ceil(Math.min(most, cacheLeft, target - freed));
    if (bytes <= 0) return;
    cacheLeft -= bytes;
    take({
      kind: 'build_cache',
      bytes,
      keep: buildCache.total - buildCache.evictable + cacheLeft,
      isNeeded,
    });
  };
  takeCache(buildCache.total - BUILD_CACHE_FLOOR * max, toLow, false);
  for (const image of ordered.filter((i) => !i.kept))
    if (freed < toLow) take({ kind: 'image', bytes: image.bytes, image });
  const stays = Math.min(
    share,
    Math.max(0, used - sum(cached) - sum(images) - buildCache.evictable),
  );
  /** Returns the bytes to free to reach a watermark of the budget minus `stays`. */
  const beside = (watermark: number): number => usedThen - stays - watermark * (share - stays);
  const isTight = hasBegun || free < wanted || beside(watermarks.high) > 0;
  const toLowBeside = isTight ? Math.max(beside(watermarks.low), toFit) : 0;
  for (const dataset of evictionOrder(cached))
    if (freed < toLowBeside) take({ kind: 'dataset', bytes: dataset.bytes, dataset });

  const [cheapSteps, cheapFreed] = [steps.length, freed];
  const keptImages = ordered.filter((i) => i.kept);
  const toHigh = Math.max(toFit, beside(watermarks.high));
  // Aim for the high watermark only if it can be reached. Otherwise kept images would be evicted
  // without ending the shortage.
  const target = freed + cacheLeft + sum(keptImages) >= toHigh ? toHigh : toFit;
  if (freed < target) takeCache(cacheLeft, target, true);
  for (const image of keptImages)
    if (freed < target) take({ kind: 'image', bytes: image.bytes, image });
  const recopyable = oldestFirst(cached.filter((c) => c.pinned === true && c.recopyable === true));
  for (const dataset of recopyable)
    if (freed < toFit) take({ kind: 'dataset', bytes: dataset.bytes, dataset });
  const enough = freed >= toFit;
  // If the eviction cannot free enough, keep the images and datasets of kept releases.
  return enough
    ? { steps, freed, enough }
    : { steps: steps.slice(0, cheapSteps), freed: cheapFreed, enough };
}

/**
 * Limits of a node. `budget`: MAX_STORAGE minus the datasets, in bytes. `disk`: free bytes on the
 * disk.
 */
export type NodeLimits = { max: number; budget: number; disk: number };
export type NodeQuestion<
  C extends CachedDataset = CachedDataset,
  I extends EvictableImage = EvictableImage,
> = Omit<DiskQuestion<C, I>, 'free' | 'used' | 'max'> & {
  limits: NodeLimits;
  /** Bytes of images and build cache that share the budget, evictable or not. */
  engineBytes: number;
};
/**
 * Plans an eviction within the budget that datasets, images and build cache share. If that is
 * impossible, plans again with only the free disk or only the datasets, so that running images do
 * not block a copy.
 */
export function planNode<C extends CachedDataset, I extends EvictableImage>(
  question: NodeQuestion<C, I>,
): DiskPlan<C, I> {
  const { limits, engineBytes, ...rest } = question;
  const { max, budget, disk } = limits;
  const used = sum(rest.cached);
  const within = planDisk({
    ...rest,
    max,
    used: used + engineBytes,
    free: Math.min(budget - engineBytes, disk),
  });
  if (within.enough || within.steps.length > 0) return within;
  const free = Math.min(budget, disk);
  return disk < budget
    ? planDisk({ ...rest, max, used: used + engineBytes, free })
    : planDisk({ ...rest, max, used, free, images: [], buildCache: { total: 0, evictable: 0 } });
}

/**
 * Plans an eviction of datasets only. Lists all datasets that can be evicted if even that is not
 * enough.
 */
export function planEviction<C extends CachedDataset>({
  cached,
  ...question
}: EvictionQuestion<C>): Eviction<C> {
  const pinned = sum(cached.filter(mustStay));
  const plan = planDisk({
    ...question,
    cached,
    images: [],
    buildCache: { total: 0, evictable: 0 },
    used: sum(cached),
  });
  const all = [
    ...evictionOrder(cached),
    ...oldestFirst(cached.filter((c) => c.pinned === true && c.recopyable === true)),
  ];
  const evict = plan.enough
    ? plan.steps.flatMap((step) => (step.kind === 'dataset' ? [step.dataset] : []))
    : all;
  return { evict, freed: sum(evict), pinned, enough: plan.enough };
}
