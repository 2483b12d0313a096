/**
 * Evicts a version that no container or task uses: moves it to .trash atomically, checks its mounts
 * again, then deletes it, or moves it back if it was mounted in the meantime.
 */
import { mkdir, readdir, rename, rmdir } from 'node:fs/promises';
import { join } from 'node:path';
import { failPoint } from '@berth/kit/fail-point';
import type { Logger } from '@berth/kit/log';
import { errorCode, nullIfMissing, removeTree } from '../file-system.ts';
import { keyOf, type Layout, trashedOf, trashName } from './layout.ts';
import type { Mounts } from './mounts.ts';
import type { Trees } from './trees.ts';
import { datasetsIn, removeMeta, removeStrayMeta, type Versions } from './versions.ts';
import type { WorkFolders } from './work-folders.ts';

export type EvictDeps = {
  layout: Layout;
  work: WorkFolders;
  versions: Versions;
  mounts: Mounts;
  trees: Trees;
  log: Logger;
  /** Tells whether a task of this process protects the version. */
  isProtected: (key: string) => boolean;
  /**
   * Returns the manifest digests of versions that this process is copying: their tree objects must
   * stay.
   */
  rootsBeingCopied: (datasetId: string) => string[];
  onChange: () => void;
};
export type Evict = {
  /** Evicts a version and returns the freed bytes; null if it is in use or does not exist. */
  version(datasetId: string, version: number): Promise<number | null>;
  /**
   * Removes the folders of dead processes in .staging and .trash, and meta files without a version.
   */
  removeLeftovers(): Promise<void>;
};

export function createEvict({
  layout,
  work,
  versions,
  mounts,
  trees,
  log,
  isProtected,
  rootsBeingCopied,
  onChange,
}: EvictDeps): Evict {
  let count = 0;

  const isUsed = async (datasetId: string, version: number): Promise<boolean> => {
    const key = keyOf(datasetId, version);
    return isProtected(key) || (await mounts.pinned()).has(key);
  };
  async function removeUnused(datasetId: string): Promise<void> {
    const remaining = (await versions.list()).filter((v) => v.datasetId === datasetId);
    await trees.prune(datasetId, [
      ...remaining.map((v) => v.manifest_digest).filter((d) => d !== ''),
      ...rootsBeingCopied(datasetId),
    ]);
    await removeStrayMeta(layout, datasetId);
    if (remaining.length > 0) return;
    // Ignore the error of a folder that is not empty: a second agent is copying into it.
    for (const folder of [layout.trees(datasetId), layout.dataset(datasetId)])
      await rmdir(folder).catch(() => undefined);
  }
  /**
   * Moves a version back from .trash. Returns false if a new copy of the version is already in its
   * place.
   */
  async function putBack(trashed: string, datasetId: string, version: number): Promise<boolean> {
    try {
      await mkdir(layout.dataset(datasetId), { recursive: true });
      await rename(trashed, layout.version(datasetId, version));
      return true;
    } catch (error) {
      if (errorCode(error) === 'ENOTEMPTY' || errorCode(error) === 'EEXIST') return false;
      throw error;
    }
  }
  /** Renames a folder so that no process moves it back or uses it during the deletion. */
  async function renameForDeletion(path: string): Promise<string> {
    const renamed = join(work.trash, `deleting.${(count += 1)}`);
    await nullIfMissing(rename(path, renamed));
    return renamed;
  }
  async function removeDead(process: string): Promise<void> {
    const [staging, trash] = [join(layout.staging, process), join(layout.trash, process)];
    log.info({ process }, 'removing the leftover copies of a dead agent process');
    for (const name of (await nullIfMissing(readdir(trash))) ?? []) {
      const was = trashedOf(name);
      if (
        was !== null &&
        (await isUsed(was.datasetId, was.version)) &&
        (await putBack(join(trash, name), was.datasetId, was.version))
      )
        continue;
      await removeTree(await renameForDeletion(join(trash, name)));
    }
    await removeTree(trash);
    // Rename the whole folder first: if a suspended process resumes, it must not publish a
    // half-deleted copy as a version.
    await removeTree(await renameForDeletion(staging));
  }
  return {
    async version(datasetId, version) {
      if (await isUsed(datasetId, version)) return null;
      const trashed = join(work.trash, trashName(datasetId, version, (count += 1)));
      await failPoint('evict.before');
      if (
        (await nullIfMissing(
          rename(layout.version(datasetId, version), trashed).then(() => true),
        )) === null
      )
        return null;
      if ((await isUsed(datasetId, version)) && (await putBack(trashed, datasetId, version)))
        return null;
      await failPoint('evict.after');
      const renamed = await renameForDeletion(trashed);
      await removeMeta(layout, datasetId, version);
      onChange();
      const freed = await removeTree(renamed);
      await removeUnused(datasetId);
      log.info({ dataset: datasetId, version, freed }, 'dataset version evicted');
      return freed;
    },
    async removeLeftovers() {
      for (const process of await work.dead()) await removeDead(process);
      for (const datasetId of await datasetsIn(layout)) {
        if (!(await versions.list()).some((v) => v.datasetId === datasetId))
          await removeUnused(datasetId);
        else await removeStrayMeta(layout, datasetId);
      }
    },
  };
}
