/**
 * Creates a new folder for each attempt at a task, and removes it when the attempt ends. Leftovers
 * of killed processes are removed at start.
 */
import { chmod, lstat, mkdir, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from '@berth/kit/log';

export type Workspaces = {
  /** Runs `work` in a folder under STATE_DIR/work and removes the folder after every outcome. */
  with<T>(name: string, work: (dir: string) => Promise<T>): Promise<T>;
  /** Call this only at start, before this process has created a workspace. */
  removeLeftovers(): Promise<void>;
};

export function createWorkspaces(root: string, log: Logger): Workspaces {
  return {
    async with(name, work) {
      const dir = join(root, name);
      await rm(dir, { recursive: true, force: true });
      await mkdir(dir, { recursive: true, mode: 0o700 });
      try {
        return await work(dir);
      } finally {
        // A failed removal must not fail a successful build; the next start removes the folder.
        await remove(dir).catch((error: unknown) =>
          log.error(
            { err: error, dir },
            'removing the workspace failed; the next start removes it',
          ),
        );
      }
    },
    async removeLeftovers() {
      await mkdir(root, { recursive: true, mode: 0o700 });
      for (const name of await readdir(root)) {
        log.info({ dir: join(root, name) }, 'removing a workspace that an earlier process left');
        await remove(join(root, name));
      }
    },
  };
}

async function remove(dir: string): Promise<void> {
  try {
    await rm(dir, { recursive: true, force: true, maxRetries: 3 });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EACCES') throw error;
    // A repository can contain folders without write permission, which an agent that is not root
    // cannot empty.
    await makeWritable(dir);
    await rm(dir, { recursive: true, force: true });
  }
}

async function makeWritable(dir: string): Promise<void> {
  await chmod(dir, 0o700);
  for (const name of await readdir(dir)) {
    const path = join(dir, name);
    if ((await lstat(path)).isDirectory()) await makeWritable(path);
  }
}
