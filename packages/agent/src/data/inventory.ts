/** What the control plane is told of the cache, and what it says should go (wire/node.ts `cached`, `copy_rate`, `forget`). */
import type { CachedDataset } from '@berth/wire/node';
import { LABELS } from '@berth/wire/vocabulary';
import type { Logger } from '@berth/kit/log';
import type { StorageMeter } from '../storage.ts';
import type { Container } from '../tools/docker.ts';
import type { CopyRate } from './copy-rate.ts';
import type { Evict } from './evict.ts';
import type { Kept } from './kept.ts';
import { keyOf } from './layout.ts';
import type { Mounts } from './mounts.ts';
import type { Versions } from './versions.ts';

export type Inventory = {
  /** `bytes` is the sum of a version's sizes. Undefined when the disk does not answer: nothing is said then. */
  cached(): Promise<CachedDataset[] | undefined>;
  copyRate(): number | null;
  /** Evicts all versions of these datasets that are not in use. */
  forget(datasetIds: readonly string[]): Promise<void>;
  /** Containers went: what they mounted was in use until now. */
  released(containers: readonly Container[]): Promise<void>;
};
export type InventoryDeps = {
  versions: Versions;
  mounts: Mounts;
  evict: Evict;
  kept: Kept;
  storage: StorageMeter;
  rate: CopyRate;
  log: Logger;
};

const LOOK_MS = 10_000;
/** How old the answer to what may be copied again may be: it asks the engine and the control plane. */
const KEPT_MS = 60_000;

export function createInventory({ versions, mounts, evict, kept, storage, rate, log }: InventoryDeps): Inventory {
  async function look(): Promise<CachedDataset[]> {
    const [here, pinned] = await Promise.all([versions.list(), mounts.pinned()]);
    const recopyable = await kept.recopyable(KEPT_MS, AbortSignal.timeout(LOOK_MS));
    return here.map((v) => ({
      dataset_id: v.datasetId,
      version: v.version,
      bytes: v.bytes,
      last_used_at: v.last_used_at,
      ...(v.name === '' ? {} : { name: v.name }),
      // What a task holds for a moment is not: nobody would be told when it lets go.
      pinned: pinned.has(keyOf(v.datasetId, v.version)),
      ...(recopyable.has(keyOf(v.datasetId, v.version)) ? { recopyable: true } : {}),
    }));
  }
  return {
    copyRate: rate.get,
    async cached() {
      let timer: NodeJS.Timeout | undefined;
      const late = new Promise<never>((_, reject) => {
        timer = setTimeout(() => reject(new Error(`not within ${LOOK_MS / 1000} s`)), LOOK_MS);
      });
      try {
        return await Promise.race([look(), late]);
      } catch (err) {
        log.warn({ err }, 'what datasets are cached cannot be looked at; registering without');
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
        for (const { datasetId, version } of (await mounts.get(deployment)).links) await versions.touch(datasetId, version);
      }
    },
  };
}
