/**
 * Reports the cached dataset versions to the control plane, and evicts the versions that the
 * control plane names (wire/node.ts `cached`, `copy_rate`, `forget`).
 */
import { defined } from '@berth/kit/defined';
import type { CachedDataset } from '@berth/wire/node';
import { LABELS } from '@berth/wire/vocabulary';
import type { Logger } from '@berth/kit/log';
import type { StorageMeter } from '../disk/storage.ts';
import type { Container } from '../engine/docker.ts';
import type { CopyRate } from './copy-rate.ts';
import type { Evict } from './evict.ts';
import type { Recopyable } from './recopyable.ts';
import { keyOf } from './layout.ts';
import type { Mounts } from './mounts.ts';
import type { Versions } from './versions.ts';

export type Inventory = {
  /**
   * Returns the cached versions; `bytes` is the sum of the file sizes. Undefined if the disk does
   * not answer: the report then omits the cache.
   */
  cached(): Promise<CachedDataset[] | undefined>;
  copyRate(): number | null;
  /** Evicts all unused versions of these datasets. */
  forget(datasetIds: readonly string[]): Promise<void>;
  /** Call this after containers were removed: their versions counted as used until now. */
  released(containers: readonly Container[]): Promise<void>;
};
export type InventoryDeps = {
  versions: Versions;
  mounts: Mounts;
  evict: Evict;
  recopyableVersions: Recopyable;
  storage: StorageMeter;
  rate: CopyRate;
  log: Logger;
};

/** If the disk does not answer within this time in ms, the report omits the cache. */
const DISK_TIMEOUT_MS = 10_000;
/**
 * Maximum age in ms of the list of recopyable versions. A new list costs calls to the engine and
 * the control plane.
 */
const RECOPYABLE_MAX_AGE_MS = 60_000;

export function createInventory({
  versions,
  mounts,
  evict,
  recopyableVersions,
  storage,
  rate,
  log,
}: InventoryDeps): Inventory {
  async function read(): Promise<CachedDataset[]> {
    const [here, pinned] = await Promise.all([versions.list(), mounts.pinned()]);
    const recopyable = await recopyableVersions.keys(
      RECOPYABLE_MAX_AGE_MS,
      AbortSignal.timeout(DISK_TIMEOUT_MS),
    );
    return here.map((v) => ({
      dataset_id: v.datasetId,
      version: v.version,
      bytes: v.bytes,
      last_used_at: v.last_used_at,
      ...defined({ name: v.name === '' ? undefined : v.name }),
      // A version that only a task protects is not reported as pinned, because no report would
      // follow the end of the protection.
      pinned: pinned.has(keyOf(v.datasetId, v.version)),
      ...defined({ recopyable: recopyable.has(keyOf(v.datasetId, v.version)) ? true : undefined }),
    }));
  }
  return {
    copyRate: rate.get,
    async cached() {
      let timer: NodeJS.Timeout | undefined;
      const late = new Promise<never>((_, reject) => {
        timer = setTimeout(
          () => reject(new Error(`the disk did not answer within ${DISK_TIMEOUT_MS / 1000} s`)),
          DISK_TIMEOUT_MS,
        );
      });
      try {
        return await Promise.race([read(), late]);
      } catch (err) {
        log.warn({ err }, 'reading the dataset cache failed; registering without it');
        return undefined;
      } finally {
        clearTimeout(timer);
      }
    },
    async forget(datasetIds) {
      for (const { datasetId, version } of await versions.list()) {
        if (!datasetIds.includes(datasetId)) continue;
        const freed = await evict.version(datasetId, version);
        if (freed !== null) storage.add(-freed);
      }
    },
    async released(containers) {
      for (const container of containers) {
        const deployment = container.labels[LABELS.deployment];
        if (deployment === undefined) continue;
        for (const { datasetId, version } of (await mounts.get(deployment)).links)
          await versions.touch(datasetId, version);
      }
    },
  };
}
