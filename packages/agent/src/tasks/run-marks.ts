/**
 * Marks of commands that might have started. A mark is written, and flushed to the disk, after the
 * container was created and before it is started. If the container is gone and its mark is there,
 * the command might have run: it must not start a second time.
 */
import { access, mkdir, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { writeFileWhole } from '@berth/kit/write-file';
import { isMissing, nullIfMissing } from '../file-system.ts';

export type RunMarks = {
  add(runId: string): Promise<void>;
  has(runId: string): Promise<boolean>;
  remove(runId: string): Promise<void>;
  /** Returns the ids of all marked runs. */
  all(): Promise<string[]>;
};

const SUFFIX = '.json';

export function createRunMarks(folder: string): RunMarks {
  const path = (runId: string): string => join(folder, runId + SUFFIX);
  return {
    async add(runId) {
      await mkdir(folder, { recursive: true, mode: 0o700 });
      await writeFileWhole(path(runId), JSON.stringify({ run_id: runId }));
    },
    has: (runId) =>
      access(path(runId)).then(
        () => true,
        (error: unknown) => {
          // A mark that cannot be read must not count as missing.
          if (!isMissing(error)) throw error;
          return false;
        },
      ),
    remove: (runId) => rm(path(runId), { force: true }),
    async all() {
      const names = (await nullIfMissing(readdir(folder))) ?? [];
      return names
        .filter((name) => name.endsWith(SUFFIX) && !name.startsWith('.'))
        .map((name) => name.slice(0, -SUFFIX.length));
    },
  };
}
