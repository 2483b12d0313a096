/**
 * Keeps this node within its disk budget, and makes room for a copy, a pull or a build
 * (wire/eviction.ts has the order).
 * Two limits refuse a copy: MAX_STORAGE minus the size of SVC_ROOT, and the free bytes of the disk.
 * The budget is stricter, because images and build cache count too. Exceeding it makes this node
 * evict, but images that cannot be evicted (of running containers) do not refuse a copy. Running
 * pulls count with the bytes that they are about to add. If the engine has its own disk,
 * MAX_STORAGE limits only the datasets, and images and build cache can fill the engine’s disk.
 */
import {
  mustStay,
  planNode,
  type DiskPlan,
  type NodeLimits,
  type Watermarks,
} from '@berth/wire/eviction';
import type { CachedDataset } from '@berth/wire/node';
import type { Logger } from '@berth/kit/log';
import { decimalSizeText } from '@berth/wire/size-text';
import type { EngineContents, EngineSpace, EngineStep } from './engine-space.ts';
import type { ImageCandidate } from './evictable-images.ts';
import type { Locks } from '../locks.ts';
import type { Reservation, StorageMeter } from './storage.ts';
import { TaskFailure } from '../failures.ts';

/** Operations on the datasets of this node. */
export type DatasetSpace = {
  /** Lists the datasets. Versions in `refused` count as in use. */
  list(refused: ReadonlySet<string>, recopyable: ReadonlySet<string>): Promise<CachedDataset[]>;
  keyOf(dataset: CachedDataset): string;
  /**
   * Removes mounts that no deployment needs, and returns the keys of versions that the share still
   * has.
   */
  refresh(signal: AbortSignal): Promise<ReadonlySet<string>>;
  /** Evicts a dataset version. Returns the freed bytes; null if it is in use now. */
  evict(dataset: CachedDataset, signal: AbortSignal, logLine: Say): Promise<number | null>;
};
type Say = (text: string) => void;
/**
 * Reserves `bytes` on the disk, after evictions if necessary. Throws TaskFailure no_room, normally
 * without any eviction. Exception: if versions share files, an eviction frees less than the sum of
 * their sizes, which is known only afterwards.
 */
export type MakeRoom = (bytes: number, signal: AbortSignal, logLine: Say) => Promise<Reservation>;
export type Room = {
  make: MakeRoom;
  /**
   * Evicts down to the low watermark if use exceeds the high watermark, or if less than `wanted`
   * bytes are free on the disk.
   */
  keep(signal: AbortSignal, options?: KeepOptions): Promise<void>;
  /** Returns notes about the budget for the operator. */
  notes(): string[];
};
export type KeepOptions = {
  /** Bytes that a pull needs on the engine's disk. */
  wanted?: number;
  /** True if the last count of images and build cache is too old. */
  recount?: boolean;
  /**
   * Log of a waiting task, which gets a line before evictions. If no eviction is possible by the
   * last count, the task continues at once.
   */
  logLine?: Say;
};
export type RoomDeps = {
  storage: StorageMeter;
  /** Null on a builder. */
  datasets: DatasetSpace | null;
  /** Null if images and build cache must not be evicted. */
  engine: EngineSpace | null;
  /**
   * Maximum bytes for images and build cache if the engine has its own disk; null for the whole
   * disk.
   */
  engineMax: number | null;
  locks: Locks;
  watermarks: Watermarks;
  log: Logger;
};

type Plan = DiskPlan<CachedDataset, ImageCandidate>;
/** State that is kept between runs. */
type Keeper = RoomDeps & {
  /** Note for the operator about images that cannot be evicted. */
  imagesNote: string | null;
  /** Number of runs that hold the lock or wait for it. */
  holders: number;
  wasFull: boolean;
};
/** State of one run. */
type Run = {
  /** Bytes that must be free on the disk. */
  wanted: number;
  /** True if the run concerns only the engine’s own disk. */
  engineOnly: boolean;
  /** Keys of datasets and names of images whose eviction was refused. */
  refused: Set<string>;
  recopyable: ReadonlySet<string>;
  contents: EngineContents | null;
  /** True if `contents` and `recopyable` were read during this run. */
  isFresh: boolean;
  /** Work to do before the next round. */
  due: 'refresh' | 'count' | null;
  /** The last prune: bytes of build cache before it, and whether it removed any. */
  pruned: { before: number; hasRemoved: boolean } | null;
  /** Consecutive prunes that did not shrink the build cache. */
  idlePrunes: number;
  cacheIsSpent: boolean;
  hasBegun: boolean;
};
type Now = {
  plan: Plan;
  cached: CachedDataset[];
  limits: NodeLimits;
  mayFit: boolean;
  fits: boolean;
};
/** Maximum age in ms of a usable count, if no image or build cache was removed since. */
export const RECENT_MS = 60_000;
/**
 * Maximum number of prunes in a row that free no space. A prune can free nothing, because the
 * engine also prunes records that share their bytes with an image.
 */
const MAX_IDLE_PRUNES = 5;
const NONE: ReadonlySet<string> = new Set();
/** Returns the sum of the bytes. */
const sum = (all: readonly { bytes: number }[]): number =>
  all.reduce((total, one) => total + one.bytes, 0);

export function createRoom(deps: RoomDeps): Room {
  const keeper: Keeper = { ...deps, imagesNote: null, holders: 0, wasFull: false };
  return {
    notes: () => (keeper.imagesNote === null ? [] : [keeper.imagesNote]),
    make: (bytes, signal, logLine) => makeRoom(keeper, bytes, signal, logLine),
    keep: (signal, options = {}) => keepRoom(keeper, signal, options),
  };
}

function makeRoom(
  keeper: Keeper,
  bytes: number,
  signal: AbortSignal,
  logLine: Say,
): Promise<Reservation> {
  if (keeper.holders > 0)
    logLine('waiting for room on the disk: this node makes room for something else first');
  return locked(keeper, signal, async () => {
    const run = begin(keeper, bytes, false);
    for (;;) {
      await prepare(keeper, run, signal);
      const outcome = await evictGroup(keeper, run, signal, logLine);
      if (outcome === 'done') return keeper.storage.reserve(bytes);
      if (outcome !== 'again') throw noRoom(bytes, outcome);
    }
  });
}

async function keepRoom(
  keeper: Keeper,
  signal: AbortSignal,
  { wanted = 0, recount: isOld = false, logLine }: KeepOptions,
): Promise<void> {
  // Count again: a pull found the disk full, so the last count is wrong.
  if (isOld) await recount(keeper, begin(keeper, 0, false), signal, wanted > 0 ? 0 : RECENT_MS);
  if (logLine !== undefined) {
    if (wanted === 0 && !(await canEvict(keeper, signal))) return;
    logLine('making room on the disk');
  }
  for (const engineOnly of [false, true]) {
    const isApart = hasOwnDisk(keeper);
    if (engineOnly && !isApart) continue;
    const full = await evictOnDisk(keeper, engineOnly === isApart ? wanted : 0, engineOnly, signal);
    if (!engineOnly) reportFull(keeper, full);
  }
}

/** Evicts until `wanted` bytes are free, or as much as possible. Returns null if there is room. */
async function evictOnDisk(
  keeper: Keeper,
  wanted: number,
  engineOnly: boolean,
  signal: AbortSignal,
): Promise<Now | null> {
  const full = await evictInRounds(keeper, wanted, engineOnly, signal);
  return full === null || wanted === 0 ? full : evictInRounds(keeper, 0, engineOnly, signal);
}

/**
 * Evicts in rounds, and holds the lock for only one round at a time, so that a copy does not wait
 * for all rounds. Returns null if there is room.
 */
async function evictInRounds(
  keeper: Keeper,
  wanted: number,
  engineOnly: boolean,
  signal: AbortSignal,
): Promise<Now | null> {
  const run = begin(keeper, wanted, engineOnly);
  const toLog: Say = (text) => keeper.log.info(text);
  for (;;) {
    await prepare(keeper, run, signal);
    const outcome = await locked(keeper, signal, () => evictGroup(keeper, run, signal, toLog));
    if (outcome !== 'again') return outcome === 'done' ? null : outcome;
  }
}

/**
 * Runs `work` alone: the budget is shared, so the second request must see the reservation of the
 * first.
 */
async function locked<T>(keeper: Keeper, signal: AbortSignal, work: () => Promise<T>): Promise<T> {
  keeper.holders += 1;
  try {
    const unlock = await keeper.locks.acquire('room on the disk', signal);
    try {
      return await work();
    } finally {
      unlock();
    }
  } finally {
    keeper.holders -= 1;
  }
}

const begin = ({ engine }: Keeper, wanted: number, engineOnly: boolean): Run => ({
  wanted,
  engineOnly,
  refused: new Set(),
  recopyable: NONE,
  contents: engine?.last() ?? null,
  isFresh: false,
  due: null,
  pruned: null,
  idlePrunes: 0,
  cacheIsSpent: false,
  hasBegun: false,
});

/** Tells whether the engine's disk is not the disk of SVC_ROOT. */
const hasOwnDisk = ({ engine }: Keeper): boolean => engine?.last()?.disk?.isOwn === true;

/** Does the work before a round without the lock, because a count can take minutes. */
async function prepare(keeper: Keeper, run: Run, signal: AbortSignal): Promise<void> {
  const { due } = run;
  run.due = null;
  if (due === 'refresh') await refresh(keeper, run, signal);
  if (due === 'count') await recount(keeper, run, signal);
  if (run.pruned === null) return;
  const { before, hasRemoved } = run.pruned;
  run.pruned = null;
  run.idlePrunes = (run.contents?.build_cache ?? 0) < before ? 0 : run.idlePrunes + 1;
  run.cacheIsSpent = !hasRemoved || run.idlePrunes >= MAX_IDLE_PRUNES;
}

async function refresh(keeper: Keeper, run: Run, signal: AbortSignal): Promise<void> {
  run.isFresh = true;
  if (!run.engineOnly && keeper.datasets !== null)
    run.recopyable = await keeper.datasets.refresh(signal);
  await recount(keeper, run, signal);
}

async function recount(
  { engine, log }: Keeper,
  run: Run,
  signal: AbortSignal,
  maxAgeMs = RECENT_MS,
): Promise<void> {
  if (engine === null) return;
  try {
    run.contents = await engine.count(signal, maxAgeMs);
  } catch (err) {
    signal.throwIfAborted();
    run.contents = null;
    log.warn({ err }, 'counting images and build cache failed; none of them is evicted');
  }
}

async function limitsOf(
  { storage, engine, engineMax }: Keeper,
  { engineOnly, contents }: Run,
  signal: AbortSignal,
): Promise<NodeLimits> {
  if (!engineOnly) return storage.now(signal);
  const { free, total } = contents?.disk ?? { free: 0, total: 0 };
  const max = Math.min(engineMax ?? total, total);
  return { max, budget: max, disk: free - (engine?.reserved() ?? 0) };
}

/** Compares the limits with the current contents of the disk. */
async function planNow(keeper: Keeper, run: Run, signal: AbortSignal): Promise<Now> {
  const { datasets, engine, engineMax, watermarks } = keeper;
  const limits = await limitsOf(keeper, run, signal);
  const cached =
    run.engineOnly || datasets === null ? [] : await datasets.list(run.refused, run.recopyable);
  const contents = run.contents?.disk?.isOwn === run.engineOnly ? run.contents : null;
  const images = (contents?.candidates ?? []).filter(({ name }) => !run.refused.has(name));
  const buildCache = buildCacheOf(run, contents);
  const engineBytes =
    contents === null ? 0 : buildCache.total + (contents.images ?? 0) + (engine?.reserved() ?? 0);
  const { wanted, hasBegun } = run;
  const plan = planNode({
    cached,
    images,
    buildCache,
    engineBytes,
    limits,
    wanted,
    hasBegun,
    watermarks,
  });
  // During image eviction, layers shared with remaining images do not count as freed.
  const isDown = plan.steps[0] === undefined || plan.steps[0].kind === 'dataset';
  if (isDown && contents !== null && (!run.engineOnly || engineMax !== null))
    noteImages(keeper, (contents.images ?? 0) - sum(images), limits.max);
  const datasetsFree = sum(cached.filter((c) => !mustStay(c)));
  return {
    plan,
    cached,
    limits,
    mayFit:
      limits.budget + datasetsFree >= wanted &&
      limits.disk + datasetsFree + buildCache.evictable + sum(images) >= wanted,
    fits: wanted <= Math.min(limits.budget, limits.disk),
  };
}

function buildCacheOf(
  { cacheIsSpent }: Run,
  contents: EngineContents | null,
): { total: number; evictable: number } {
  const total = contents?.build_cache ?? 0;
  const unused = Math.min(total, contents?.build_cache_unused ?? 0);
  return { total, evictable: cacheIsSpent ? 0 : unused };
}

function noteImages(keeper: Keeper, bytes: number, max: number): void {
  const isNew = keeper.imagesNote === null;
  keeper.imagesNote = bytes <= keeper.watermarks.low * max ? null : textOfImages(bytes, max);
  if (isNew && keeper.imagesNote !== null)
    keeper.log.warn({ reason: keeper.imagesNote }, 'images that stay use most of the budget');
}

/**
 * Evicts one group. Returns `again` until there is room, or until no further eviction is possible.
 */
async function evictGroup(
  keeper: Keeper,
  run: Run,
  signal: AbortSignal,
  logLine: Say,
): Promise<'again' | 'done' | Now> {
  const { engine, storage } = keeper;
  // Another run might have evicted and counted again: use its count.
  if (run.isFresh && run.contents !== null) run.contents = engine?.last() ?? null;
  const now = await planNow(keeper, run, signal);
  const { steps } = now.plan;
  if (steps.length === 0 && now.fits) return 'done';
  if (!run.isFresh) run.due = 'refresh';
  // The last count is older than the last eviction, so count again.
  else if (run.contents !== null && engine?.isCurrent() === false) run.due = 'count';
  if (run.due !== null) return 'again';
  if (steps.length === 0 || (!now.fits && !now.mayFit)) return now;
  await evictSteps(keeper, run, steps, signal, logLine);
  const onlyDatasets = steps.every((step) => step.kind === 'dataset');
  // Versions can share files, and a shared file is freed only with its last version. Compare with
  // the free space again.
  return onlyDatasets && run.wanted <= (await storage.now(signal)).free ? 'done' : 'again';
}

async function evictSteps(
  keeper: Keeper,
  run: Run,
  steps: Plan['steps'],
  signal: AbortSignal,
  logLine: Say,
): Promise<void> {
  const [first] = steps;
  run.hasBegun = true;
  if (first?.kind === 'build_cache') await pruneBuildCache(keeper, run, first, signal);
  for (const step of steps) {
    if (step.kind !== first?.kind || step.kind === 'build_cache') break;
    signal.throwIfAborted();
    if (step.kind === 'image') {
      if (step.image.kept && step !== first) break;
      await evictImage(keeper, run, step, signal, logLine);
    } else {
      await evictDataset(keeper, run, step.dataset, signal, logLine);
    }
  }
  // Images and build cache share layers, so only a new count shows how much an eviction freed.
  if (first?.kind !== 'dataset' && run.contents !== null) run.due = 'count';
}

async function pruneBuildCache(
  keeper: Keeper,
  run: Run,
  step: Extract<EngineStep, { kind: 'build_cache' }>,
  signal: AbortSignal,
): Promise<void> {
  const before = run.contents?.build_cache ?? 0;
  run.pruned = { before, hasRemoved: await evictOfEngine(keeper, run, step, signal) };
  keeper.log.info({ keep: step.keep, wanted: run.wanted }, 'build cache pruned');
}

async function evictImage(
  keeper: Keeper,
  run: Run,
  step: Extract<EngineStep, { kind: 'image' }>,
  signal: AbortSignal,
  logLine: Say,
): Promise<void> {
  const { name, kept } = step.image;
  // Try each image only once: an image that is listed again afterwards is now in use.
  run.refused.add(name);
  if (!(await evictOfEngine(keeper, run, step, signal))) return;
  keeper.log.info({ image: name, kept }, 'image evicted to make room');
  if (kept)
    logLine(`evicted the image ${name}, which was kept for a rollback; a rollback pulls it again`);
}

async function evictDataset(
  { datasets, storage }: Keeper,
  run: Run,
  dataset: CachedDataset,
  signal: AbortSignal,
  logLine: Say,
): Promise<void> {
  if (datasets === null) return;
  const freed = await datasets.evict(dataset, signal, logLine);
  if (freed === null) run.refused.add(datasets.keyOf(dataset));
  else storage.add(-freed);
}

/** Evicts from the engine. Returns whether it removed anything. */
async function evictOfEngine(
  { engine, log }: Keeper,
  run: Run,
  step: EngineStep,
  signal: AbortSignal,
): Promise<boolean> {
  if (engine === null || run.contents === null) return false;
  try {
    return await engine.evict(step, signal);
  } catch (err) {
    signal.throwIfAborted();
    // If the engine does not answer at all, the next count reports it. A node might only lack
    // buildx.
    log.warn(
      { err, kind: step.kind },
      'evicting from the engine failed; will retry after the next task',
    );
    return false;
  }
}

async function canEvict(keeper: Keeper, signal: AbortSignal): Promise<boolean> {
  const hasSteps = async (engineOnly: boolean): Promise<boolean> => {
    const now = await planNow(keeper, begin(keeper, 0, engineOnly), signal);
    return now.plan.steps.length > 0 && (now.fits || now.mayFit);
  };
  return (await hasSteps(false)) || (hasOwnDisk(keeper) && (await hasSteps(true)));
}

function reportFull(keeper: Keeper, full: Now | null): void {
  if (full !== null && !keeper.wasFull)
    keeper.log.warn(
      { reason: textOfFull(full) },
      'the disk is full, and nothing else can be evicted',
    );
  keeper.wasFull = full !== null;
}

const textOfImages = (bytes: number, max: number): string =>
  `images that stay use ${decimalSizeText(bytes)} of the ${decimalSizeText(max)} of MAX_STORAGE: containers ` +
  'need them, or Berth did not build them. ' +
  `${decimalSizeText(Math.max(0, max - bytes))} are left for datasets and build cache. Raise ` +
  'MAX_STORAGE, or move projects to another node';

const stayText = (stay: readonly CachedDataset[]): string =>
  `${decimalSizeText(sum(stay))} of datasets are in use or kept for the last releases`;
function textOfFull({ limits, cached }: Now): string {
  const over = Math.max(0, -Math.min(limits.budget, limits.disk));
  const stay = cached.filter(mustStay);
  return (
    `SVC_ROOT and running copies use ${decimalSizeText(over)} more than the ${decimalSizeText(limits.max)} of ` +
    `MAX_STORAGE; ${stayText(stay)}`
  );
}
function noRoom(bytes: number, { limits, cached, plan }: Now): TaskFailure {
  const free = Math.max(0, Math.min(limits.budget, limits.disk));
  const stay = cached.filter(mustStay);
  const evictable =
    sum(cached) - sum(stay) + sum(plan.steps.filter((step) => step.kind !== 'dataset'));
  return new TaskFailure(
    'no_room',
    `the copy needs ${decimalSizeText(bytes)}; ${decimalSizeText(free)} of ${decimalSizeText(limits.max)} are free, ` +
      `${decimalSizeText(evictable)} could be evicted, ${decimalSizeText(sum(stay))} are in use or kept for ` +
      'the last releases',
  );
}
