/**
 * Saves for the next process: the containers that ran at the last check, the engine process, and
 * the containers that the agent stopped.
 */
import { readFile } from 'node:fs/promises';
import type { Logger } from '@berth/kit/log';
import { writeFileWhole } from '@berth/kit/write-file';
import type { Container } from './docker.ts';

type Saved = { engine: string | null; running: string[]; stopped: string[] };

export type RunMemory = {
  /** The engine process at the last check (Docker.engineStart). */
  engine(): string | null;
  ran(c: Pick<Container, 'id'>): boolean;
  wasStopped(c: Pick<Container, 'id' | 'name'>): boolean;
  /** Records a stop, by id or name; resolves when the record is on disk. */
  stopping(ref: string): Promise<void>;
  /** Forgets a stop, because the container was removed or will run again. */
  forget(ref: string): Promise<void>;
  /** Forgets the stops of containers that no longer exist. */
  retainOnly(listed: readonly Pick<Container, 'id' | 'name'>[]): Promise<void>;
  /** Records the result of a check. */
  checked(now: Pick<Saved, 'engine' | 'running'>): Promise<void>;
};

export async function createRunMemory(path: string, log: Logger): Promise<RunMemory> {
  const read = await readSaved(path, log);
  let { engine } = read;
  let running = new Set(read.running);
  const stopped = new Set(read.stopped);
  let written = JSON.stringify(read);
  let writing: Promise<void> = Promise.resolve();

  async function write(): Promise<void> {
    const text = JSON.stringify({
      engine,
      running: [...running].sort(),
      stopped: [...stopped],
    } satisfies Saved);
    if (text === written) return;
    try {
      await writeFileWhole(path, text);
      written = text;
    } catch (error) {
      // A full disk must not prevent a stop; the record is still in memory.
      log.warn({ err: error }, 'saving the list of running containers failed');
    }
  }
  /**
   * Only one write runs at a time. Each write saves the state that is the newest when it starts.
   */
  const save = (): Promise<void> => (writing = writing.then(write));

  return {
    engine: () => engine,
    ran: ({ id }) => running.has(id),
    wasStopped: ({ id, name }) => stopped.has(id) || stopped.has(name),
    stopping(ref) {
      stopped.add(ref);
      return save();
    },
    forget(ref) {
      stopped.delete(ref);
      return save();
    },
    retainOnly(listed) {
      const present = new Set(listed.flatMap(({ id, name }) => [id, name]));
      for (const ref of stopped) if (!present.has(ref)) stopped.delete(ref);
      return save();
    },
    checked(now) {
      // If the engine process is unknown, keep the last known one.
      engine = now.engine ?? engine;
      running = new Set(now.running);
      return save();
    },
  };
}

async function readSaved(path: string, log: Logger): Promise<Saved> {
  try {
    const content = JSON.parse(await readFile(path, 'utf8')) as Partial<Saved>;
    const list = (given: unknown): string[] =>
      Array.isArray(given) ? given.filter((id) => typeof id === 'string') : [];
    return {
      engine: typeof content.engine === 'string' ? content.engine : null,
      running: list(content.running),
      stopped: list(content.stopped),
    };
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT')
      log.warn(
        { err: error, path },
        'reading the list of containers that ran before failed; starting without it',
      );
    return { engine: null, running: [], stopped: [] };
  }
}
