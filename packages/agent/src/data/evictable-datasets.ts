/** Presents the datasets of this node to eviction.ts as evictable items. */
import type { CachedDataset } from '@berth/wire/node';
import type { Logger } from '@berth/kit/log';
import type { DatasetSpace } from '../disk/eviction.ts';
import type { Evict } from './evict.ts';
import { keyOf } from './layout.ts';
import type { SweepMounts } from './sweep-mounts.ts';
import type { Recopyable } from './recopyable.ts';
import type { Mounts } from './mounts.ts';
import type { CachedVersion, Versions } from './versions.ts';
import { decimalSizeText } from '@berth/wire/size-text';

export type DatasetSpaceDeps = {
  versions: Versions;
  mounts: Mounts;
  evict: Evict;
  sweepMounts: SweepMounts;
  recopyableVersions: Recopyable;
  isProtected: (key: string) => boolean;
  log: Logger;
};

export function createDatasetSpace(deps: DatasetSpaceDeps): DatasetSpace {
  const { versions, mounts, evict, sweepMounts, recopyableVersions, isProtected, log } = deps;
  return {
    keyOf: (c) => keyOf(c.dataset_id, c.version),
    async list(refused, recopyable) {
      const pinned = await mounts.pinned();
      return (await versions.list()).map((v) => {
        const key = keyOf(v.datasetId, v.version);
        const isTaken = isProtected(key) || refused.has(key);
        return candidateOf(v, {
          pinned: pinned.has(key) || isTaken,
          recopyable: recopyable.has(key) && !isTaken,
        });
      });
    },
    async refresh(signal) {
      await sweepMounts(signal).catch((err: unknown) => {
        signal.throwIfAborted();
        log.warn({ err }, 'listing containers failed; all mount folders stay');
      });
      await evict.removeLeftovers();
      // Use a fresh list from the control plane, because the list decides about an eviction.
      return recopyableVersions.keys(0, signal);
    },
    async evict(c, signal, logLine) {
      if (c.pinned !== true) return evict.version(c.dataset_id, c.version);
      const name = (await versions.get(c.dataset_id, c.version))?.name ?? c.dataset_id;
      await recopyableVersions.release(c.dataset_id, c.version, signal);
      const freed = await evict.version(c.dataset_id, c.version);
      if (freed !== null)
        logLine(
          `evicted ${name} v${c.version} (${decimalSizeText(c.bytes)}), which was kept for a ` +
            'rollback, to make room; a rollback copies it again',
        );
      return freed;
    },
  };
}

const candidateOf = (
  v: CachedVersion,
  flags: { pinned: boolean; recopyable: boolean },
): CachedDataset => ({
  dataset_id: v.datasetId,
  version: v.version,
  bytes: v.bytes,
  last_used_at: v.last_used_at,
  ...flags,
});
