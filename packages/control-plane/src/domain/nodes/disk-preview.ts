/**
 * Previews the evictions of a node: what its agent would evict to free space, with the reasons.
 * Pure.
 */
import {
  type DiskPlan,
  type DiskStep,
  mustStay,
  type NodeLimits,
  type NodeQuestion,
  planDisk,
  planNode,
} from '@berth/wire/eviction';
import { defined } from '@berth/kit/defined';
import type { NodeDisk, NodeDiskView } from '@berth/wire/node';
import type { NodeRecord } from '../platform/records.ts';

type Preview = Omit<NodeDiskView, 'disk' | 'volumes' | 'budget_bytes' | 'wanted_bytes'>;
type Evicted = NodeDiskView['evict'][number];

/** Reasons why the preview covers datasets only. */
const NO_DISK = 'the agent of this node has not reported its disk';
const NO_COUNT =
  'the agent of this node could not count images and build cache the last time, so this ' +
  'preview covers datasets only';
const NO_EVICTABLE =
  'the agent of this node evicts neither images nor build cache, so this preview covers ' +
  'datasets only: it does not see the data folder of ' +
  'the container engine (it runs in a container, as with compose, or the engine is on another ' +
  'machine), or it is of an earlier version';

/**
 * Returns the preview. `free`: `free_storage` as the agent reported it. `namesImages`: false for a
 * caller who cannot see all projects, because an image name contains the name of its project.
 */
export function previewDisk(
  { cached, max_storage, disk }: Pick<NodeRecord, 'cached' | 'max_storage' | 'disk'>,
  { free, wanted, namesImages }: { free: number; wanted: number; namesImages: boolean },
): Preview {
  const evictable = disk?.evictable;
  const shared = evictable?.own_disk === null ? evictable : null;
  const own = evictable?.own_disk ?? null;
  const [images, buildCache] = [disk?.images ?? 0, disk?.build_cache ?? 0];
  const engineBytes = images + buildCache;
  const cachedBytes = sum(cached);
  const sharedBytes = shared === null ? 0 : engineBytes;
  const limits = limitsOf(max_storage, free, shared === null ? null : disk, cachedBytes);
  // `free_storage` counts only SVC_ROOT against MAX_STORAGE; images and build cache share it.
  const budgetFree = Math.min(free, limits.budget - sharedBytes);
  const plan = untilFits({
    cached,
    ...partsOf(shared ?? null, buildCache),
    engineBytes: sharedBytes,
    limits,
    wanted,
  });
  const ofEngine =
    own === null || evictable === undefined
      ? []
      : planDisk({
          cached: [],
          ...partsOf(evictable, buildCache),
          free: Math.min(own.free, own.total - engineBytes),
          used: engineBytes,
          wanted: 0,
          max: own.total,
        }).steps;
  const datasetsStay = sum(cached.filter(mustStay));
  const canGo = (evictable?.build_cache ?? 0) + sum(evictable?.images ?? []);
  return {
    free_bytes: budgetFree,
    enough: plan.enough,
    evict: [...plan.steps, ...ofEngine].map((step, i) =>
      evictedOf(step, namesImages ? null : `image ${i + 1}`),
    ),
    kept_bytes: datasetsStay + (evictable === undefined ? 0 : Math.max(0, engineBytes - canGo)),
    ...defined({ unavailable: evictable === undefined ? whyNot(disk) : undefined }),
  };
}

function whyNot(disk: NodeDisk | null): string {
  if (disk === null) return NO_DISK;
  return disk.images === null ? NO_COUNT : NO_EVICTABLE;
}
/**
 * Returns the limits of the node. `disk.free` is the free space of all disks of the node; `free` is
 * the smaller of disk space and budget.
 */
function limitsOf(
  max: number,
  free: number,
  disk: NodeDisk | null,
  cachedBytes: number,
): NodeLimits {
  if (disk === null) return { max, budget: free, disk: free };
  const budget = max - (disk.datasets ?? cachedBytes);
  return disk.free < budget
    ? { max, budget, disk: free }
    : { max, budget: free, disk: Math.max(disk.free, free) };
}
/** Returns the dataset or image that the step evicts, or the step itself for the build cache. */
function evictedBy(step: DiskPlan['steps'][number]): unknown {
  switch (step.kind) {
    case 'dataset':
      return step.dataset;
    case 'image':
      return step.image;
    default:
      return step;
  }
}

/**
 * Plans in two rounds, like the agent: first evicts for the budget, then compares the remaining
 * data with the limits again.
 */
function untilFits(question: NodeQuestion): Pick<DiskPlan, 'steps' | 'enough'> {
  const first = planNode(question);
  if (first.enough) return first;
  const gone = new Set<unknown>(first.steps.map(evictedBy));
  const freedOf = (isDataset: boolean): number =>
    sum(first.steps.filter((step) => (step.kind === 'dataset') === isDataset));
  const cacheFreed = sum(first.steps.filter((step) => step.kind === 'build_cache'));
  const { limits, buildCache } = question;
  const then = planNode({
    ...question,
    cached: question.cached.filter((one) => !gone.has(one)),
    images: question.images.filter((one) => !gone.has(one)),
    buildCache: {
      total: buildCache.total - cacheFreed,
      evictable: buildCache.evictable - cacheFreed,
    },
    engineBytes: question.engineBytes - freedOf(false),
    limits: {
      max: limits.max,
      budget: limits.budget + freedOf(true),
      disk: limits.disk + first.freed,
    },
    hasBegun: true,
  });
  return { steps: [...first.steps, ...then.steps], enough: then.enough };
}

const sum = (all: readonly { bytes: number }[]): number =>
  all.reduce((total, one) => total + one.bytes, 0);
const partsOf = (evictable: NodeDisk['evictable'] | null, total: number) => ({
  images: evictable?.images ?? [],
  buildCache: {
    total: evictable === null || evictable === undefined ? 0 : total,
    evictable: Math.min(total, evictable?.build_cache ?? 0),
  },
});

function evictedOf(step: DiskStep, instead: string | null): Evicted {
  if (step.kind === 'build_cache') {
    const why = step.isNeeded
      ? 'nothing cheaper makes enough room; the next builds take longer'
      : 'least recently used; builds make it again';
    return { kind: step.kind, name: 'build cache', bytes: step.bytes, why };
  }
  if (step.kind === 'image') {
    const { name, kept, created_at } = step.image;
    const why = kept
      ? 'only a rollback needs it, and the registry still has it'
      : 'no container and no kept release uses it';
    return {
      kind: step.kind,
      name: instead ?? name,
      bytes: step.bytes,
      why: `${why}; created ${created_at}`,
    };
  }
  const { name, dataset_id, version, recopyable, last_used_at } = step.dataset;
  const why =
    recopyable === true
      ? 'only kept releases use it, and the share still has it'
      : 'no container and no kept release uses it';
  return {
    kind: step.kind,
    name: `${name ?? dataset_id} v${version}`,
    bytes: step.bytes,
    why: `${why}; last used ${last_used_at}`,
  };
}
