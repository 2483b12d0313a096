/**
 * The dataset versions on this node. A version is copied once, even if several tasks request it,
 * and is not evicted while a task protects it. A version is in the cache if `objects/{id}/v{n}`
 * exists with the requested manifest; the cache keeps no other state.
 */
import type { DatasetSource } from '@berth/wire/dataset';
import type { RefCounts } from '@berth/kit/ref-count';
import { TaskFailure } from '../failures.ts';
import type { Evict } from './evict.ts';
import { keyOf, type Layout } from './layout.ts';
import type { Copied, CopyListener } from './transfer.ts';
import type { Transfers } from './transfers.ts';
import type { Versions } from './versions.ts';
import { versionText, type WantedVersion, wantedVersionOf } from './wanted-version.ts';

/**
 * A version that this process does not evict until `release` is called. `copied` is null if the
 * version was already in the cache.
 */
export type ProtectedVersion = {
  want: WantedVersion;
  copied: Pick<Copied, 'files' | 'bytes'> | null;
  release(): void;
};
export type Cache = {
  /**
   * Copies the version if it is not in the cache, and protects it from eviction. Throws TaskFailure
   * dataset_not_ready, dataset_unreachable, dataset_moving, dataset_copy_failed, disk_full,
   * no_room, no_share. Rejects with the signal's reason.
   */
  ensure(
    source: DatasetSource,
    listener: CopyListener,
    signal: AbortSignal,
  ): Promise<ProtectedVersion>;
  stop(): Promise<void>;
};
export type CacheDeps = {
  layout: Layout;
  versions: Versions;
  evict: Evict;
  protectedVersions: RefCounts;
  transfers: Transfers;
};

/**
 * Maximum number of times to copy one version: a second process can evict or replace a version that
 * has just been copied.
 */
const MAX_TRIES = 5;

export function createCache({
  layout,
  versions,
  evict,
  protectedVersions,
  transfers,
}: CacheDeps): Cache {
  async function isCached(want: WantedVersion): Promise<boolean> {
    const cachedVersion = await versions.get(want.dataset_id, want.version);
    if (cachedVersion === null) return false;
    if (cachedVersion.manifest_digest === want.manifest_digest) return true;
    // Evict the version: its content is not the requested content (the control plane's database was
    // restored, and the number was used again), or its meta file is lost.
    if ((await evict.version(want.dataset_id, want.version)) !== null) return false;
    throw new TaskFailure(
      'dataset_copy_failed',
      `the cached copy ${layout.version(want.dataset_id, want.version)} does not match ` +
        `${versionText(want)}, and a container uses it; stop that deployment, then try again`,
    );
  }
  return {
    stop: () => transfers.stop(),
    async ensure(source, listener, signal) {
      let want = wantedVersionOf(source);
      const sum = { files: 0, bytes: 0 };
      let copied = false;
      for (let i = 0; i < MAX_TRIES; i += 1) {
        signal.throwIfAborted();
        // Check the cache before protecting the version: a version with the wrong content must be
        // evicted, and protection would prevent that.
        const cached = await isCached(want);
        const release = protectedVersions.add(keyOf(want.dataset_id, want.version));
        if (cached && (await versions.get(want.dataset_id, want.version)) !== null) {
          await versions.touch(want.dataset_id, want.version);
          return { want, copied: copied ? sum : null, release };
        }
        try {
          const arrived = await transfers.of(want).join(listener, signal);
          copied = true;
          sum.files += arrived.files;
          sum.bytes += arrived.bytes;
          want = arrived.want;
        } finally {
          release();
        }
      }
      throw new TaskFailure(
        'dataset_copy_failed',
        `${versionText(want)} was evicted by another process after each of ${MAX_TRIES} ` +
          'copies; try again',
      );
    },
  };
}
