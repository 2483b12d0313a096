/** A folder in memory (tmpfs) for keys of running tasks, so that no key is ever on a disk. */
import { createHash } from 'node:crypto';
import { lstat, mkdir, mkdtemp, readdir, rm, statfs } from 'node:fs/promises';
import { join } from 'node:path';

export type PrivateFolder = {
  /** Runs `work`. Its argument makes a folder that only this user can read, on the first call. It is removed after every outcome. */
  with<T>(work: (dir: () => Promise<string>) => Promise<T>): Promise<T>;
  /** Call only at start: removes what a killed process left. */
  removeLeftovers(): Promise<void>;
};

/** `f_type` of tmpfs and ramfs (statfs(2)). */
const IN_MEMORY = [0x01021994, 0x858458f6];

/** `base`: KEYS_DIR. `owner`: the state folder of this agent, because several agents may share `base`. */
export function createPrivateFolder(base: string, owner: string): PrivateFolder {
  const uid = process.getuid?.() ?? 0;
  const root = join(base, `berth-${uid}-${createHash('sha256').update(owner).digest('hex').slice(0, 12)}`);

  /** Other users may write to `base`, so a folder of this name may be theirs. */
  async function open(): Promise<void> {
    const { type } = await statfs(base);
    if (!IN_MEMORY.includes(type)) throw new Error(`${base} is not in memory (tmpfs); set KEYS_DIR to a folder of a tmpfs`);
    await mkdir(root, { mode: 0o700 }).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'EEXIST') throw error;
    });
    const found = await lstat(root);
    if (!found.isDirectory() || found.uid !== uid || (found.mode & 0o077) !== 0)
      throw new Error(`${root} is not a folder of mode 0700 of this user; remove it`);
  }

  return {
    async with(work) {
      let made: Promise<string> | null = null;
      const make = (): Promise<string> => (made ??= open().then(() => mkdtemp(join(root, 'task-'))));
      try {
        return await work(make);
      } finally {
        const dir = await (made as Promise<string> | null)?.catch(() => null);
        if (dir !== undefined && dir !== null) await rm(dir, { recursive: true, force: true });
      }
    },
    async removeLeftovers() {
      const found = await lstat(root).catch(() => null);
      if (found === null || !found.isDirectory() || found.uid !== uid) return;
      for (const name of await readdir(root)) await rm(join(root, name), { recursive: true, force: true });
    },
  };
}
