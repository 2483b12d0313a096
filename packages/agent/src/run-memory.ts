/** What ran when it was last looked, on which process of the engine, and what we stopped on purpose: on disk, for the next process. */
import { readFile, rename, writeFile } from 'node:fs/promises';
import type { Logger } from '@berth/kit/log';
import type { Container } from './tools/docker.ts';

type Known = { engine: string | null; running: string[]; stopped: string[] };

export type RunMemory = {
  /** The process of the engine that was last looked at (Docker.incarnation). */
  engine(): string | null;
  ran(c: Pick<Container, 'id'>): boolean;
  wasStopped(c: Pick<Container, 'id' | 'name'>): boolean;
  /** By id or name; written before it resolves. */
  stopping(ref: string): Promise<void>;
  /** It is gone, or is to run again. */
  forget(ref: string): Promise<void>;
  /** What an earlier process was killed over is gone by now, or still there. */
  onlyOf(seen: readonly Pick<Container, 'id' | 'name'>[]): Promise<void>;
  looked(now: Pick<Known, 'engine' | 'running'>): Promise<void>;
};

export async function createRunMemory(path: string, log: Logger): Promise<RunMemory> {
  const read = await readKnown(path, log);
  let { engine } = read;
  let running = new Set(read.running);
  const stopped = new Set(read.stopped);
  let written = JSON.stringify(read);
  let writing: Promise<void> = Promise.resolve();

  async function write(): Promise<void> {
    const text = JSON.stringify({ engine, running: [...running].sort(), stopped: [...stopped] } satisfies Known);
    if (text === written) return;
    try {
      await writeFile(`${path}.new`, text, { mode: 0o600 });
      await rename(`${path}.new`, path);
      written = text;
    } catch (error) {
      // A disk that is full must not keep containers from being stopped; this process knows it all the same.
      log.warn({ err: error }, 'what runs here could not be written down');
    }
  }
  /** One after the other: each writes what is known when its turn comes. */
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
    onlyOf(seen) {
      const there = new Set(seen.flatMap(({ id, name }) => [id, name]));
      for (const ref of stopped) if (!there.has(ref)) stopped.delete(ref);
      return save();
    },
    looked(now) {
      // Not told just now: it is the one that was told before.
      engine = now.engine ?? engine;
      running = new Set(now.running);
      return save();
    },
  };
}

async function readKnown(path: string, log: Logger): Promise<Known> {
  try {
    const content = JSON.parse(await readFile(path, 'utf8')) as Partial<Known>;
    const list = (given: unknown): string[] => (Array.isArray(given) ? given.filter((id) => typeof id === 'string') : []);
    return {
      engine: typeof content.engine === 'string' ? content.engine : null,
      running: list(content.running),
      stopped: list(content.stopped),
    };
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') log.warn({ err: error, path }, 'what ran here before cannot be read');
    return { engine: null, running: [], stopped: [] };
  }
}
