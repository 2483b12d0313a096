/**
 * Writes files atomically: a reader sees the complete old content or the complete new content, also
 * after a power failure.
 *
 *   temporary file in the same folder -> flush -> rename (or link) -> flush of the folder
 *
 * rename(2) alone is not enough. Without the flush of the file, the new name can lead to an empty
 * file after a power failure. Without the flush of the folder, the rename itself can be lost
 * although the call has returned.
 */
import { randomBytes } from 'node:crypto';
import {
  closeSync,
  fchmodSync,
  fchownSync,
  fsyncSync,
  linkSync,
  openSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { type FileHandle, link, mkdir, open, readdir, rename, rm, stat } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';

export type WriteOptions = {
  /** Permissions of the file, whatever the umask is. The default is 0600. */
  mode?: number;
  /** The default is the user of this process. */
  owner?: { uid: number; gid: number };
  /** Fails with EEXIST if the file exists. If several processes write, exactly one succeeds. */
  exclusive?: boolean;
};
export type WriteAsyncOptions = WriteOptions & {
  /**
   * Creates a missing folder with this mode, even if another process removes the folder during the
   * write.
   */
  folderMode?: number;
};

const MODE = 0o600;
/** Temporary names are hidden, so that programs that list the folder ignore unfinished files. */
const TEMPORARY = /^\..+\.[0-9a-f]{12}\.new$/;
const temporaryOf = (path: string): string =>
  join(dirname(path), `.${basename(path)}.${randomBytes(6).toString('hex')}.new`);

/**
 * True if a file of this name is unfinished: a process is writing it, or was killed while writing
 * it.
 */
export const isTemporary = (name: string): boolean => TEMPORARY.test(name);

/**
 * Writes the file atomically. If it rejects, the old content is unchanged, unless the flush of the
 * folder failed after the rename.
 */
export async function writeFileWhole(
  path: string,
  content: string | Uint8Array,
  options: WriteAsyncOptions = {},
): Promise<void> {
  const { folderMode } = options;
  if (folderMode === undefined) return writeOnce(path, content, options);
  for (let tries = 1; ; tries += 1) {
    try {
      const created = await mkdir(dirname(path), { recursive: true, mode: folderMode });
      await writeOnce(path, content, options);
      // A new folder is durable only after a flush of its parent folder.
      if (created !== undefined) await flush(dirname(created));
      return;
    } catch (error) {
      if (codeOf(error) !== 'ENOENT' || tries === MAX_TRIES) throw error;
    }
  }
}
const MAX_TRIES = 10;

async function writeOnce(
  path: string,
  content: string | Uint8Array,
  { mode, owner, exclusive }: WriteOptions,
): Promise<void> {
  const temporary = temporaryOf(path);
  try {
    await writeTemporary(temporary, async (file) => {
      await file.writeFile(content);
      if (owner !== undefined) await file.chown(owner.uid, owner.gid);
      // Set the mode after chown, which can clear mode bits.
      await file.chmod(mode ?? MODE);
    });
    // Open the folder before the rename, so that a folder that cannot be opened fails before
    // anything changes.
    const folder = await open(dirname(path), 'r');
    try {
      if (exclusive === true) await link(temporary, path);
      else await rename(temporary, path);
      await folder.sync();
    } finally {
      await folder.close();
    }
  } finally {
    await rm(temporary, { force: true });
  }
}

async function writeTemporary(
  path: string,
  write: (file: FileHandle) => Promise<void>,
): Promise<void> {
  const file = await open(path, 'wx', MODE);
  try {
    await write(file);
    await file.sync();
  } finally {
    await file.close();
  }
}

/** Synchronous form of writeFileWhole. The folder must exist. */
export function writeFileWholeSync(
  path: string,
  content: string | Uint8Array,
  { mode, owner, exclusive }: WriteOptions = {},
): void {
  const temporary = temporaryOf(path);
  const folder = openSync(dirname(path), 'r');
  try {
    const file = openSync(temporary, 'wx', MODE);
    try {
      writeFileSync(file, content);
      if (owner !== undefined) fchownSync(file, owner.uid, owner.gid);
      fchmodSync(file, mode ?? MODE);
      fsyncSync(file);
    } finally {
      closeSync(file);
    }
    if (exclusive === true) linkSync(temporary, path);
    else renameSync(temporary, path);
    fsyncSync(folder);
  } finally {
    closeSync(folder);
    rmSync(temporary, { force: true });
  }
}

/**
 * Moves a finished file to `path` durably: flush, rename, flush of the folder. Both paths must be
 * on the same file system. Use it for files that a stream wrote.
 */
export async function replaceFile(finished: string, path: string): Promise<void> {
  await flush(finished);
  await rename(finished, path);
  await flush(dirname(path));
}

/** Synchronous form of replaceFile. */
export function replaceFileSync(finished: string, path: string): void {
  flushSync(finished);
  renameSync(finished, path);
  flushSync(dirname(path));
}

/** Flushes a file, or the entries of a folder, to the disk. */
export async function flush(path: string): Promise<void> {
  const file = await open(path, 'r');
  try {
    await file.sync();
  } finally {
    await file.close();
  }
}

function flushSync(path: string): void {
  const file = openSync(path, 'r');
  try {
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
}

/**
 * Removes unfinished files of killed processes from a folder. If other processes write there,
 * `minAgeMs` protects their files.
 */
export async function removeTemporary(folder: string, minAgeMs = 0): Promise<void> {
  for (const name of (await readdir(folder)).filter(isTemporary)) {
    const path = join(folder, name);
    const age =
      minAgeMs === 0
        ? 0
        : Date.now() - ((await stat(path).catch(nullIfMissing)) ?? { mtimeMs: 0 }).mtimeMs;
    if (age >= minAgeMs) await rm(path, { force: true });
  }
}

function nullIfMissing(error: unknown): null {
  if (codeOf(error) === 'ENOENT') return null;
  throw error;
}

const codeOf = (error: unknown): string | undefined => (error as NodeJS.ErrnoException).code;
