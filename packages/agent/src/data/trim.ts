/**
 * Limits the number of unused versions of a dataset: a dataset that changes often must not fill the
 * disk with folders of hard links.
 */
import type { Logger } from '@berth/kit/log';
import type { StorageMeter } from '../disk/storage.ts';
import type { Evict } from './evict.ts';
import { keyOf } from './layout.ts';
import type { Mounts } from './mounts.ts';
import type { Versions } from './versions.ts';

export type TrimDeps = {
  versions: Versions;
  mounts: Mounts;
  evict: Evict;
  storage: StorageMeter;
  /** The setting KEEP_VERSIONS. */
  keepVersions: number;
  log: Logger;
};
/**
 * Keeps the newest `keepVersions` unmounted versions of a dataset and evicts the older ones, except
 * `arrived`, which is about to be mounted. Never rejects.
 */
export type Trim = (datasetId: string, arrived: number) => Promise<void>;

export function createTrim({
  versions,
  mounts,
  evict,
  storage,
  keepVersions,
  log,
}: TrimDeps): Trim {
  async function trim(datasetId: string, arrived: number): Promise<void> {
    const pinned = await mounts.pinned();
    const unused = (await versions.list())
      .filter((v) => v.datasetId === datasetId && !pinned.has(keyOf(datasetId, v.version)))
      .sort((a, b) => b.version - a.version);
    for (const { version } of unused.slice(keepVersions)) {
      // Skip the version that just arrived. `evict` keeps a version that a task protects; the trim
      // after the next copy removes it.
      const freed = version === arrived ? null : await evict.version(datasetId, version);
      if (freed !== null) storage.add(-freed);
    }
  }
  return (datasetId, arrived) =>
    trim(datasetId, arrived).catch((err: unknown) =>
      log.warn(
        { err, dataset: datasetId },
        'evicting old dataset versions failed; will retry after the next copy',
      ),
    );
}
