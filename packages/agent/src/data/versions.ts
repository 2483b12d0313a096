/** Whole versions of datasets on this node and what is known of each. Reads the disk each time: another agent may share it. */
import { randomUUID } from 'node:crypto';
import { readdir, rename, stat, unlink } from 'node:fs/promises';
import { dirname } from 'node:path';
import { failPoint } from '@berth/kit/fail-point';
import { errorCode, isGone, orNull, readJson, syncFolder, writeWhole } from './disk.ts';
import { isId, type Layout } from './layout.ts';

/** `bytes` is the sum of the sizes of its files; what it shares with other versions by hard links counts in each. */
export type VersionMeta = { manifest_digest: string; name: string; bytes: number; files: number; last_used_at: string };
export type CachedVersion = VersionMeta & { datasetId: string; version: number };

export type Versions = {
  list(): Promise<CachedVersion[]>;
  get(datasetId: string, version: number): Promise<CachedVersion | null>;
  /** Used now. Only the order of evictions hangs on it: it never fails because it cannot be written down. */
  touch(datasetId: string, version: number): Promise<void>;
  /** Makes a verified, flushed folder the version. False when one stands there already, whatever it holds: the folder is still there then. */
  publish(datasetId: string, version: number, folder: string, meta: VersionMeta): Promise<boolean>;
};

const VERSION = /^v([1-9]\d*)$/;
const TRIES = 3;
/** Of a version whose file was lost: the first to be evicted, and never taken for a copy of anything. */
const UNKNOWN: VersionMeta = { manifest_digest: '', name: '', bytes: 0, files: 0, last_used_at: new Date(0).toISOString() };

export function createVersions(layout: Layout): Versions {
  async function metaOf(datasetId: string, version: number): Promise<VersionMeta> {
    const meta = await readJson(layout.meta(datasetId, version));
    return isMeta(meta) ? meta : UNKNOWN;
  }
  async function get(datasetId: string, version: number): Promise<CachedVersion | null> {
    const there = await orNull(stat(layout.version(datasetId, version)));
    return there?.isDirectory() === true ? { datasetId, version, ...(await metaOf(datasetId, version)) } : null;
  }
  return {
    get,
    async list() {
      const found: CachedVersion[] = [];
      for (const datasetId of await datasetsIn(layout)) {
        for (const name of (await orNull(readdir(layout.dataset(datasetId)))) ?? []) {
          const version = VERSION.exec(name)?.[1];
          if (version !== undefined) found.push({ datasetId, version: Number(version), ...(await metaOf(datasetId, Number(version))) });
        }
      }
      return found;
    },
    async touch(datasetId, version) {
      const there = await get(datasetId, version);
      if (there === null || there.manifest_digest === '') return;
      const { datasetId: _, version: __, ...meta } = there;
      const used = JSON.stringify({ ...meta, last_used_at: new Date().toISOString() });
      // A disk that is full must be able to get empty: what is retired is touched first.
      await writeWhole(layout.meta(datasetId, version), used).catch(() => undefined);
    },
    async publish(datasetId, version, folder, meta) {
      const path = layout.version(datasetId, version);
      await failPoint('copy.renamed.before');
      // It may be of an earlier numbering, and what is known of it must not become what is known of this one.
      if (await isThere(path)) return false;
      for (let tries = 1; ; tries += 1) {
        // Before the folder: a version that can be seen is one that is known. Where another agent was quicker it says the same.
        await writeWhole(layout.meta(datasetId, version), JSON.stringify(meta));
        try {
          await rename(folder, path);
          break;
        } catch (error) {
          if (errorCode(error) === 'ENOTEMPTY' || errorCode(error) === 'EEXIST') return false;
          // Another agent that tidied up took the dataset's folder, which held no version yet.
          if (!isGone(error) || tries === TRIES || !(await isThere(folder))) throw error;
        }
      }
      await failPoint('copy.renamed.after');
      // Somebody who tidied up in this moment saw a file about no version.
      if (!isMeta(await readJson(layout.meta(datasetId, version)))) await writeWhole(layout.meta(datasetId, version), JSON.stringify(meta));
      for (const parent of [dirname(path), layout.objects, layout.root]) await syncFolder(parent);
      return true;
    },
  };
}

function isMeta(value: unknown): value is VersionMeta {
  const meta = value as Partial<VersionMeta> | null;
  return (
    typeof meta?.manifest_digest === 'string' &&
    typeof meta.name === 'string' &&
    Number.isSafeInteger(meta.bytes) &&
    Number.isSafeInteger(meta.files) &&
    !Number.isNaN(Date.parse(meta.last_used_at ?? ''))
  );
}

/** Files about versions that are no more: of a process that died between the two. */
export async function removeStrayMeta(layout: Layout, datasetId: string): Promise<void> {
  for (const name of (await orNull(readdir(layout.dataset(datasetId)))) ?? []) {
    const version = /^\.v([1-9]\d*)\.json$/.exec(name)?.[1];
    if (version !== undefined) await removeMeta(layout, datasetId, Number(version));
  }
}

/** Removes what is known of a version, unless the version stands, or is published in this moment. */
export async function removeMeta(layout: Layout, datasetId: string, version: number): Promise<void> {
  const [folder, path] = [layout.version(datasetId, version), layout.meta(datasetId, version)];
  if (await isThere(folder)) return;
  const aside = `${path}.${randomUUID()}.old`;
  if ((await orNull(rename(path, aside).then(() => true))) === null) return;
  if (await isThere(folder)) await rename(aside, path);
  else await unlink(aside);
}

const isThere = async (path: string): Promise<boolean> => (await orNull(stat(path))) !== null;

/** Ids of the datasets that have a folder; whatever else somebody put there is none of ours. */
export async function datasetsIn(layout: Layout): Promise<string[]> {
  return ((await orNull(readdir(layout.objects))) ?? []).filter(isId);
}
