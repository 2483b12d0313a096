/** A fresh folder for each attempt at a task, gone when the work is over; and what earlier, killed processes left. */
import { chmod, lstat, mkdir, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from '@berth/kit/log';

export type Workspaces = {
  /** Runs `work` in a folder of its own under STATE_DIR/work and removes the folder, whatever happens. */
  with<T>(name: string, work: (dir: string) => Promise<T>): Promise<T>;
  /** At start only: nothing of this process is there yet. */
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
        // A folder that cannot be removed must not turn a build that is done into a failed one; the next start removes it.
        await remove(dir).catch((error: unknown) => log.error({ err: error, dir }, 'workspace not removed'));
      }
    },
    async removeLeftovers() {
      await mkdir(root, { recursive: true, mode: 0o700 });
      for (const name of await readdir(root)) {
        log.info({ dir: join(root, name) }, 'removing the workspace of an earlier run');
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
    // A repository may hold folders without the write bit; an agent that is not root cannot empty those as they are.
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
