/** Writes a little into each folder that the agent needs. /readyz asks no login, so many requests at once cost one write. */
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

export type Folder = { setting: 'SVC_ROOT' | 'STATE_DIR'; path: string };
type Options = { write?: (path: string) => Promise<void>; deadlineMs?: number; freshMs?: number };

/** Small files may fit where no block is free. */
const SOME = Buffer.alloc(64 * 1024);

/** Returns what is wrong with each folder. A disk that hangs has one write under way, however often it is asked for. */
export function createWritable(folders: readonly Folder[], options: Options = {}): () => Promise<string[]> {
  const { write = writeSome, deadlineMs = 2_000, freshMs = 1_000 } = options;
  const looks = folders.map((folder) => createLook(folder, write, deadlineMs));
  let last: { at: number; problems: Promise<string[]> } | null = null;
  return () => {
    if (last === null || performance.now() - last.at >= freshMs)
      last = { at: performance.now(), problems: Promise.all(looks.map((look) => look())).then((all) => all.filter((p) => p !== null)) };
    return last.problems.then((problems) => [...problems]);
  };
}

function createLook({ setting, path }: Folder, write: (path: string) => Promise<void>, deadlineMs: number): () => Promise<string | null> {
  let writing: Promise<string | null> | null = null;
  return async () => {
    writing ??= write(path)
      .then(
        () => null,
        (error: unknown) => `${setting} (${path}) cannot be written: ${withoutPath(error)}`,
      )
      .finally(() => (writing = null));
    const late = Promise.withResolvers<string>();
    const text = `${setting} (${path}) does not answer: a write was not done after ${deadlineMs / 1000} s`;
    const timer = setTimeout(() => late.resolve(text), deadlineMs);
    try {
      return await Promise.race([writing, late.promise]);
    } finally {
      clearTimeout(timer);
    }
  };
}

/** One name: an agent that was killed meanwhile leaves no more than one file. */
async function writeSome(path: string): Promise<void> {
  const file = join(path, '.writable');
  try {
    await writeFile(file, SOME, { mode: 0o600 });
  } finally {
    await rm(file, { force: true });
  }
}

const withoutPath = (error: unknown): string => (error instanceof Error ? error.message : String(error)).replace(/ '.*'$/, '');
