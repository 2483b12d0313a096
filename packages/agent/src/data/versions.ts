/**
 * The complete dataset versions on this node, and their meta data. Each call reads the disk,
 * because a second agent can change the same folder.
 */
import { randomUUID } from 'node:crypto';
import { readdir, rename, stat, unlink } from 'node:fs/promises';
import { dirname } from 'node:path';
import { failPoint } from '@berth/kit/fail-point';
import { flush } from '@berth/kit/write-file';
import { errorCode, isMissing, nullIfMissing, readJson, writeWhole } from '../file-system.ts';
import { isId, type Layout } from './layout.ts';

/**
 * Meta data of a version. `bytes`: sum of the file sizes; a file that versions share by hard links
 * counts in each version.
 */
export type VersionMeta = {
  manifest_digest: string;
  name: string;
  bytes: number;
  files: number;
  last_used_at: string;
};
export type CachedVersion = VersionMeta & { datasetId: string; version: number };

export type Versions = {
  list(): Promise<CachedVersion[]>;
  get(datasetId: string, version: number): Promise<CachedVersion | null>;
  /**
   * Marks the version as used now. Never fails, because only the order of evictions depends on the
   * mark.
   */
  touch(datasetId: string, version: number): Promise<void>;
  /**
   * Publishes a verified, flushed folder as the version. Returns false, and leaves the folder, if
   * the version already exists, with any content.
   */
  publish(datasetId: string, version: number, folder: string, meta: VersionMeta): Promise<boolean>;
};

const VERSION = /^v([1-9]\d*)$/;
const MAX_TRIES = 3;
/**
 * Meta data of a version whose meta file is lost. Such a version is evicted first and never used as
 * a copy.
 */
const UNKNOWN: VersionMeta = {
  manifest_digest: '',
  name: '',
  bytes: 0,
  files: 0,
  last_used_at: new Date(0).toISOString(),
};

export function createVersions(layout: Layout): Versions {
  async function metaOf(datasetId: string, version: number): Promise<VersionMeta> {
    const meta = await readJson(layout.meta(datasetId, version));
    return isMeta(meta) ? meta : UNKNOWN;
  }
  async function get(datasetId: string, version: number): Promise<CachedVersion | null> {
    const existing = await nullIfMissing(stat(layout.version(datasetId, version)));
    return existing?.isDirectory() === true
      ? { datasetId, version, ...(await metaOf(datasetId, version)) }
      : null;
  }
  return {
    get,
    async list() {
      const cachedVersions: CachedVersion[] = [];
      for (const datasetId of await datasetsIn(layout)) {
        for (const name of (await nullIfMissing(readdir(layout.dataset(datasetId)))) ?? []) {
          const version = VERSION.exec(name)?.[1];
          if (version !== undefined)
            cachedVersions.push({
              datasetId,
              version: Number(version),
              ...(await metaOf(datasetId, Number(version))),
            });
        }
      }
      return cachedVersions;
    },
    async touch(datasetId, version) {
      const existing = await get(datasetId, version);
      if (existing === null || existing.manifest_digest === '') return;
      const { datasetId: _, version: __, ...meta } = existing;
      const used = JSON.stringify({ ...meta, last_used_at: new Date().toISOString() });
      // Ignore a full disk: a retirement marks versions as used first, and must not fail.
      await writeWhole(layout.meta(datasetId, version), used).catch(() => undefined);
    },
    async publish(datasetId, version, folder, meta) {
      const path = layout.version(datasetId, version);
      await failPoint('copy.renamed.before');
      // Do not overwrite the meta data of an existing folder, which can be older than a database
      // restore.
      if (await isThere(path)) return false;
      for (let tries = 1; ; tries += 1) {
        // Write the meta file before the folder appears, so that each visible version has one. A
        // concurrent agent would write the same text.
        await writeWhole(layout.meta(datasetId, version), JSON.stringify(meta));
        try {
          await rename(folder, path);
          break;
        } catch (error) {
          if (errorCode(error) === 'ENOTEMPTY' || errorCode(error) === 'EEXIST') return false;
          // Another agent's clean-up removed the dataset's folder while it was empty.
          if (!isMissing(error) || tries === MAX_TRIES || !(await isThere(folder))) throw error;
        }
      }
      await failPoint('copy.renamed.after');
      // A concurrent cleanup might have removed the meta file before the version appeared.
      if (!isMeta(await readJson(layout.meta(datasetId, version))))
        await writeWhole(layout.meta(datasetId, version), JSON.stringify(meta));
      for (const parent of [dirname(path), layout.objects, layout.root]) await flush(parent);
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

/** Removes meta files without a version, which a process leaves if it dies between two steps. */
export async function removeStrayMeta(layout: Layout, datasetId: string): Promise<void> {
  for (const name of (await nullIfMissing(readdir(layout.dataset(datasetId)))) ?? []) {
    const version = /^\.v([1-9]\d*)\.json$/.exec(name)?.[1];
    if (version !== undefined) await removeMeta(layout, datasetId, Number(version));
  }
}

/** Removes a version's meta file, unless the version exists or is just being published. */
export async function removeMeta(
  layout: Layout,
  datasetId: string,
  version: number,
): Promise<void> {
  const [folder, path] = [layout.version(datasetId, version), layout.meta(datasetId, version)];
  if (await isThere(folder)) return;
  const renamed = `${path}.${randomUUID()}.old`;
  if ((await nullIfMissing(rename(path, renamed).then(() => true))) === null) return;
  if (await isThere(folder)) await rename(renamed, path);
  else await unlink(renamed);
}

const isThere = async (path: string): Promise<boolean> =>
  (await nullIfMissing(stat(path))) !== null;

/**
 * Returns the ids of the datasets that have a folder. Ignores folders whose name is not a dataset
 * id.
 */
export async function datasetsIn(layout: Layout): Promise<string[]> {
  return ((await nullIfMissing(readdir(layout.objects))) ?? []).filter(isId);
}
