/**
 * Taking a version away without taking it from anybody: renamed out of sight in one step, looked at once more whether somebody
 * has mounted it in this moment (then it is put back), and only then deleted.
 */
import { mkdir, readdir, rename, rmdir } from 'node:fs/promises';
import { join } from 'node:path';
import { failPoint } from '@berth/kit/fail-point';
import type { Logger } from '@berth/kit/log';
import { errorCode, orNull, removeTree } from './disk.ts';
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
  /** A task of this process uses it. */
  isHeld: (key: string) => boolean;
  /** Of versions that this process is copying: their tree objects stay. */
  rootsUnderWay: (datasetId: string) => string[];
  onChange: () => void;
};
export type Evict = {
  /** How many bytes it freed; null when it is in use or gone. */
  version(datasetId: string, version: number): Promise<number | null>;
  /** What dead processes left in .staging and .trash, and files about versions that are no more. */
  leftovers(): Promise<void>;
};

export function createEvict({ layout, work, versions, mounts, trees, log, isHeld, rootsUnderWay, onChange }: EvictDeps): Evict {
  let count = 0;

  const isUsed = async (datasetId: string, version: number): Promise<boolean> => {
    const key = keyOf(datasetId, version);
    return isHeld(key) || (await mounts.pinned()).has(key);
  };
  async function tidy(datasetId: string): Promise<void> {
    const left = (await versions.list()).filter((v) => v.datasetId === datasetId);
    await trees.prune(datasetId, [...left.map((v) => v.manifest_digest).filter((d) => d !== ''), ...rootsUnderWay(datasetId)]);
    await removeStrayMeta(layout, datasetId);
    if (left.length > 0) return;
    // Not empty: another agent is at work on it.
    for (const folder of [layout.trees(datasetId), layout.dataset(datasetId)]) await rmdir(folder).catch(() => undefined);
  }
  /** Back to where it was, unless somebody has put another copy there. */
  async function putBack(aside: string, datasetId: string, version: number): Promise<boolean> {
    try {
      await mkdir(layout.dataset(datasetId), { recursive: true });
      await rename(aside, layout.version(datasetId, version));
      return true;
    } catch (error) {
      if (errorCode(error) === 'ENOTEMPTY' || errorCode(error) === 'EEXIST') return false;
      throw error;
    }
  }
  /** Gives it a name by which nobody puts it back, or goes on with it, when only a part of it is left. */
  async function seal(path: string): Promise<string> {
    const sealed = join(work.trash, `going.${(count += 1)}`);
    await orNull(rename(path, sealed));
    return sealed;
  }
  async function removeDead(process: string): Promise<void> {
    const [staging, trash] = [join(layout.staging, process), join(layout.trash, process)];
    log.info({ process }, 'removing what an agent that is no more left of its copies');
    for (const name of (await orNull(readdir(trash))) ?? []) {
      const was = trashedOf(name);
      if (was !== null && (await isUsed(was.datasetId, was.version)) && (await putBack(join(trash, name), was.datasetId, was.version)))
        continue;
      await removeTree(await seal(join(trash, name)));
    }
    await removeTree(trash);
    // Whole: who was only taken for dead (it slept for long) must not find a part of its copy and make that a version.
    await removeTree(await seal(staging));
  }
  return {
    async version(datasetId, version) {
      if (await isUsed(datasetId, version)) return null;
      const aside = join(work.trash, trashName(datasetId, version, (count += 1)));
      await failPoint('evict.before');
      if ((await orNull(rename(layout.version(datasetId, version), aside).then(() => true))) === null) return null;
      if ((await isUsed(datasetId, version)) && (await putBack(aside, datasetId, version))) return null;
      await failPoint('evict.after');
      const sealed = await seal(aside);
      await removeMeta(layout, datasetId, version);
      onChange();
      const freed = await removeTree(sealed);
      await tidy(datasetId);
      log.info({ dataset: datasetId, version, freed }, 'a cached version of a dataset was evicted');
      return freed;
    },
    async leftovers() {
      for (const process of await work.dead()) await removeDead(process);
      for (const datasetId of await datasetsIn(layout)) {
        if (!(await versions.list()).some((v) => v.datasetId === datasetId)) await tidy(datasetId);
        else await removeStrayMeta(layout, datasetId);
      }
    },
  };
}
