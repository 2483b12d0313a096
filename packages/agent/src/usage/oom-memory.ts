/**
 * Saves which containers lost a process to their memory limit: kernel and engine forget this when a
 * container restarts.
 */
import { readFile } from 'node:fs/promises';
import type { Logger } from '@berth/kit/log';
import { writeFileWhole } from '@berth/kit/write-file';

export type OomRecord = {
  /** Start time of the run to which `inRun` belongs. */
  run: string | null;
  /** Number of kills in previous runs. */
  before: number;
  /** Number of kills in this run. */
  inRun: number;
  /** Time of the last kill in ms since 1970. */
  last_at: number;
};

export type OomMemory = {
  get(id: string): OomRecord | undefined;
  set(id: string, record: OomRecord): void;
  /** Forgets containers that no longer exist. */
  retainOnly(ids: ReadonlySet<string>): void;
  saved(): Promise<void>;
};

export async function createOomMemory(path: string, log: Logger): Promise<OomMemory> {
  const records = await read(path, log);
  let writing: Promise<void> = Promise.resolve();
  async function write(): Promise<void> {
    try {
      await writeFileWhole(path, JSON.stringify(Object.fromEntries(records)));
    } catch (err) {
      // The counts are still in memory of this process.
      log.warn({ err }, 'saving the out-of-memory kills of containers failed');
    }
  }
  const save = (): void => void (writing = writing.then(write));
  return {
    get: (id) => records.get(id),
    set(id, record) {
      records.set(id, record);
      save();
    },
    retainOnly(ids) {
      const gone = [...records.keys()].filter((id) => !ids.has(id));
      for (const id of gone) records.delete(id);
      if (gone.length > 0) save();
    },
    saved: () => writing,
  };
}

async function read(path: string, log: Logger): Promise<Map<string, OomRecord>> {
  try {
    const content = JSON.parse(await readFile(path, 'utf8')) as Record<string, Partial<OomRecord>>;
    return new Map(
      Object.entries(content).flatMap(([id, { run = null, before, inRun, last_at }]) =>
        [before, inRun, last_at].every((n) => typeof n === 'number')
          ? [[id, { run, before, inRun, last_at } as OomRecord] as const]
          : [],
      ),
    );
  } catch (err) {
    if ((err as NodeJS.ErrnoException).code !== 'ENOENT')
      log.warn(
        { err, path },
        'reading the out-of-memory kills of containers failed; starting without them',
      );
    return new Map();
  }
}
