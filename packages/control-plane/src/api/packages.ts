/**
 * The packages in PACKAGE_DIR, from which machines install Berth before they join. They are public,
 * because they contain no secret.
 */
import { createHash } from 'node:crypto';
import { constants } from 'node:fs';
import { type FileHandle, lstat, open, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { LRUCache } from 'lru-cache';
import { growingTo } from './lru.ts';

export type PackageFile = { name: string; version: string; arch: string; sha256: string };
export type Packages = {
  /** Returns the packages of one version; no packages if the folder is missing. */
  ofVersion(version: string): Promise<PackageFile[]>;
  /** Opens a package; returns null if no package has this name. */
  open(name: string): Promise<{ file: FileHandle; bytes: number } | null>;
};

const NAME = /^berth_([0-9A-Za-z.+~]{1,60})_([a-z0-9]{2,12})\.deb$/;
/** Maximum number of packages: more than there are architectures. */
const MOST = 8;

export function createPackages(folder: string | null): Packages {
  /** Checksums by name, size and modification time. */
  const checksums = new LRUCache<string, string>(growingTo(MOST));

  async function checksumOf(name: string): Promise<string | null> {
    const opened = await openFile(name);
    if (opened === null) return null;
    try {
      const { size, mtimeMs } = await opened.stat();
      const key = `${name} ${size} ${mtimeMs}`;
      const before = checksums.get(key);
      if (before !== undefined) return before;
      const hash = createHash('sha256');
      for await (const part of opened.createReadStream({ autoClose: false }))
        hash.update(part as Buffer);
      const sha256 = hash.digest('hex');
      checksums.set(key, sha256);
      return sha256;
    } finally {
      await opened.close();
    }
  }

  async function openFile(name: string): Promise<FileHandle | null> {
    if (folder === null || !NAME.test(name)) return null;
    const path = join(folder, name);
    try {
      if (!(await lstat(path)).isFile()) return null;
      return await open(path, constants.O_RDONLY | constants.O_NOFOLLOW);
    } catch {
      return null;
    }
  }

  return {
    async ofVersion(version) {
      const names = folder === null ? [] : await readdir(folder).catch(() => []);
      const wanted = names.toSorted().flatMap((name) => {
        const [, found, arch = ''] = NAME.exec(name) ?? [];
        return found === version ? [{ name, version, arch }] : [];
      });
      const files = await Promise.all(
        wanted.slice(0, MOST).map(async (one) => ({ ...one, sha256: await checksumOf(one.name) })),
      );
      return files.flatMap(({ sha256, ...one }) => (sha256 === null ? [] : [{ ...one, sha256 }]));
    },
    async open(name) {
      const file = await openFile(name);
      if (file === null) return null;
      try {
        return { file, bytes: (await file.stat()).size };
      } catch (error) {
        await file.close();
        throw error;
      }
    },
  };
}
