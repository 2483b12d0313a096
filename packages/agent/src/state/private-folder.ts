/**
 * Creates a folder in memory (tmpfs) for the keys of running tasks, so that no key is written to
 * disk.
 */
import { createHash } from 'node:crypto';
import { access, constants, lstat, mkdir, mkdtemp, readdir, rm, statfs } from 'node:fs/promises';
import { dirname, join } from 'node:path';

export type PrivateFolder = {
  /**
   * Runs `work`. The first call of its argument creates a folder that only this user can read. The
   * folder is removed after every outcome.
   */
  with<T>(work: (dir: () => Promise<string>) => Promise<T>): Promise<T>;
  /** Call this only at start: removes what a killed process left. */
  removeLeftovers(): Promise<void>;
};

/** `f_type` of tmpfs and ramfs (statfs(2)). */
const IN_MEMORY = [0x01021994, 0x858458f6];

/** Returns the folder, or the nearest folder above it that exists. */
export async function nearest(folder: string): Promise<string> {
  const exists = await access(folder).then(
    () => true,
    () => false,
  );
  return exists || dirname(folder) === folder ? folder : nearest(dirname(folder));
}

/** The folder in memory of every Linux system, for an agent without a usable SECRETS_DIR. */
const SHARED_MEMORY = '/dev/shm';

/**
 * Returns KEYS_DIR, an old setting, if it is set. Otherwise returns SECRETS_DIR, or /dev/shm if
 * SECRETS_DIR cannot be created or is not in memory.
 */
export async function keysBase({
  KEYS_DIR,
  SECRETS_DIR,
}: {
  KEYS_DIR?: string | undefined;
  SECRETS_DIR: string;
}): Promise<string> {
  if (KEYS_DIR !== undefined) return KEYS_DIR;
  try {
    // Check this before creating the folder, so that no useless folder stays on the wrong file
    // system.
    if (!IN_MEMORY.includes((await statfs(await nearest(SECRETS_DIR))).type)) return SHARED_MEMORY;
    await mkdir(SECRETS_DIR, { recursive: true, mode: 0o700 });
    await access(SECRETS_DIR, constants.W_OK);
    return SECRETS_DIR;
  } catch {
    return SHARED_MEMORY;
  }
}

/**
 * Creates the folder below `base` (`keysBase`). `owner` is this agent's state folder, because
 * several agents can share `base`.
 */
export function createPrivateFolder(base: string, owner: string): PrivateFolder {
  const uid = process.getuid?.() ?? 0;
  const root = join(
    base,
    `berth-${uid}-${createHash('sha256').update(owner).digest('hex').slice(0, 12)}`,
  );

  /** Other users can write to `base`, so a folder with this name can belong to one of them. */
  async function open(): Promise<void> {
    const { type } = await statfs(base);
    if (!IN_MEMORY.includes(type))
      throw new Error(`${base} is not in memory (tmpfs); set SECRETS_DIR to a folder of a tmpfs`);
    await mkdir(root, { mode: 0o700 }).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'EEXIST') throw error;
    });
    const stats = await lstat(root);
    if (!stats.isDirectory() || stats.uid !== uid || (stats.mode & 0o077) !== 0)
      throw new Error(`${root} is not a folder of mode 0700 of this user; remove it`);
  }

  return {
    async with(work) {
      let made: Promise<string> | null = null;
      const make = (): Promise<string> =>
        (made ??= open().then(() => mkdtemp(join(root, 'task-'))));
      try {
        return await work(make);
      } finally {
        const dir = await (made as Promise<string> | null)?.catch(() => null);
        if (dir !== undefined && dir !== null) await rm(dir, { recursive: true, force: true });
      }
    },
    async removeLeftovers() {
      const stats = await lstat(root).catch(() => null);
      if (stats === null || !stats.isDirectory() || stats.uid !== uid) return;
      for (const name of await readdir(root))
        await rm(join(root, name), { recursive: true, force: true });
    },
  };
}
