/**
 * Checks that the agent can write to its folders, with a small file in each. /readyz needs no
 * login, so parallel requests share one write.
 */
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { messageOf } from '@berth/kit/message-of';

export type CheckedFolder = { setting: 'SVC_ROOT' | 'STATE_DIR'; path: string };
type Options = { write?: (path: string) => Promise<void>; deadlineMs?: number; freshMs?: number };

/** 64 KiB, because a smaller file can fit on a disk without a free block. */
const CONTENT = Buffer.alloc(64 * 1024);

/**
 * Returns the problems of the folders. A hanging disk gets only one write, however many requests
 * arrive.
 */
export function createWritable(
  folders: readonly CheckedFolder[],
  options: Options = {},
): () => Promise<string[]> {
  const { write = writeTestFile, deadlineMs = 2_000, freshMs = 1_000 } = options;
  const checks = folders.map((folder) => createCheck(folder, write, deadlineMs));
  let last: { at: number; problems: Promise<string[]> } | null = null;
  return () => {
    if (last === null || performance.now() - last.at >= freshMs)
      last = {
        at: performance.now(),
        problems: Promise.all(checks.map((check) => check())).then((all) =>
          all.filter((p) => p !== null),
        ),
      };
    return last.problems.then((problems) => [...problems]);
  };
}

function createCheck(
  { setting, path }: CheckedFolder,
  write: (path: string) => Promise<void>,
  deadlineMs: number,
): () => Promise<string | null> {
  let writing: Promise<string | null> | null = null;
  return async () => {
    writing ??= write(path)
      .then(
        () => null,
        (error: unknown) => `${setting} (${path}) cannot be written: ${withoutPath(error)}`,
      )
      .finally(() => (writing = null));
    const late = Promise.withResolvers<string>();
    const seconds = deadlineMs / 1000;
    const text = `${setting} (${path}) does not answer: a write did not finish within ${seconds} s`;
    const timer = setTimeout(() => late.resolve(text), deadlineMs);
    try {
      return await Promise.race([writing, late.promise]);
    } finally {
      clearTimeout(timer);
    }
  };
}

/** The file name is fixed, so a killed agent leaves at most one file. */
async function writeTestFile(path: string): Promise<void> {
  const file = join(path, '.writable');
  try {
    await writeFile(file, CONTENT, { mode: 0o600 });
  } finally {
    await rm(file, { force: true });
  }
}

const withoutPath = (error: unknown): string => messageOf(error).replace(/ '.*'$/, '');
