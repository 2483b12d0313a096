/**
 * Creates a staging folder from a manifest: all folders and symlinks, and hard links for files
 * whose content is already on this node. Two lists name the other files: one for rsync (raw paths)
 * and one for the verification (checksums). A manifest can name a million files, so only the index
 * of link sources is kept in memory.
 */
import { chmod, link, lstat, mkdir, open, symlink, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import {
  decodeName,
  type FileEntry,
  type LoadTree,
  type NamedEntry,
  walkTree,
} from '@berth/wire/tree';
import { errorCode, inParallel, isMissing } from '../file-system.ts';

/** Files on this node by content (`contentKey`), as sources of hard links. `paths` are encoded. */
export type LinkSource = { folder: string; paths: ReadonlyMap<string, string> };
export type Staging = {
  folder: string;
  /** The files to copy. `room`: their size on disk in bytes. */
  copy: { files: number; bytes: number; room: number };
  linked: { files: number; bytes: number };
  /** File that lists the paths to copy, for rsync. */
  list: string;
  /** File that lists the expected size and checksum of each path, for the verification. */
  expectedList: string;
};
/** One line of the list for the verification. */
export type Expected = { path: string; size: number; checksum: string; executable: boolean };

const PARALLEL = 32;
const BLOCK = 4096;

export const contentKey = (file: Pick<FileEntry, 'checksum' | 'executable'>): string =>
  `${file.executable ? 'x' : 'f'}${file.checksum}`;

/** Returns the absolute path as bytes. */
export const pathIn = (folder: string, encoded: string): Buffer =>
  Buffer.concat([Buffer.from(`${folder}/`), decodeName(encoded)]);

/**
 * Creates the folder `place/files`, which must not exist, and the files `list` and `expected`
 * beside it. Rejects with errors of `load` and of the disk.
 */
export async function makeStaging(
  place: string,
  {
    root,
    load,
    sources,
    signal,
  }: { root: string; load: LoadTree; sources: readonly LinkSource[]; signal: AbortSignal },
): Promise<Staging> {
  const made: Staging = {
    folder: join(place, 'files'),
    copy: { files: 0, bytes: 0, room: 0 },
    linked: { files: 0, bytes: 0 },
    list: join(place, 'list'),
    expectedList: join(place, 'expected'),
  };
  await mkdir(place, { recursive: true });
  await makeFolder(made.folder);
  const [list, expectedList] = [
    await createAppender(made.list),
    await createAppender(made.expectedList),
  ];
  const folders = new Map<string, Promise<unknown>>();
  const folderOf = (path: string): Promise<unknown> => {
    const creating = folders.get(path) ?? makeBelow(path);
    folders.set(path, creating);
    return creating;
  };
  async function makeBelow(path: string): Promise<void> {
    const slash = path.lastIndexOf('/');
    if (slash !== -1) await folderOf(path.slice(0, slash));
    await makeFolder(pathIn(made.folder, path));
  }
  async function placeEntry(path: string, entry: NamedEntry): Promise<void> {
    signal.throwIfAborted();
    if (entry.kind === 'folder') return void (await folderOf(path));
    const slash = path.lastIndexOf('/');
    if (slash !== -1) await folderOf(path.slice(0, slash));
    const to = pathIn(made.folder, path);
    if (entry.kind === 'link') return symlink(decodeName(entry.target), to);
    if (await linkFrom(sources, entry, to)) {
      made.linked.files += 1;
      made.linked.bytes += entry.size;
      return;
    }
    made.copy.files += 1;
    made.copy.bytes += entry.size;
    made.copy.room += Math.ceil(entry.size / BLOCK) * BLOCK;
    await list.add(Buffer.concat([PREFIX, decodeName(path), NUL]));
    await expectedList.add(
      Buffer.from(`${entry.executable ? 'x' : 'f'} ${entry.size} ${entry.checksum} ${path}\n`),
    );
  }
  try {
    await inParallel(walkTree(root, load), PARALLEL, ({ path, entry }) => placeEntry(path, entry));
  } finally {
    try {
      await list.close();
    } finally {
      await expectedList.close();
    }
  }
  return made;
}
/**
 * Sets the mode explicitly: every user of a container must be able to enter the folder, whatever
 * the agent's umask is.
 */
async function makeFolder(path: Buffer | string): Promise<void> {
  await mkdir(path);
  await chmod(path, 0o755);
}

/** Prefix of each path: rsync reads a line that begins with `#` or `;` as a comment. */
const PREFIX = Buffer.from('./');
const NUL = Buffer.from([0]);

/**
 * Creates a hard link to a file with the same content, if one exists. Also checks the size: a
 * truncated file must not become a source.
 */
async function linkFrom(
  sources: readonly LinkSource[],
  entry: FileEntry,
  to: Buffer,
): Promise<boolean> {
  const key = contentKey(entry);
  for (const { folder, paths } of sources) {
    const from = paths.get(key);
    if (from === undefined) continue;
    try {
      await link(pathIn(folder, from), to);
    } catch (error) {
      // The source has just been evicted, or the file system allows no further hard link to it.
      if (isMissing(error) || ['EMLINK', 'EPERM', 'EXDEV'].includes(errorCode(error) ?? ''))
        continue;
      throw error;
    }
    const stat = await lstat(to);
    if (stat.isFile() && stat.size === entry.size) return true;
    await unlink(to);
  }
  return false;
}

/** Returns a cached version as a link source. */
export async function sourceOfTree(
  folder: string,
  root: string,
  load: LoadTree,
): Promise<LinkSource> {
  const paths = new Map<string, string>();
  for await (const { path, entry } of walkTree(root, load))
    if (entry.kind === 'file') paths.set(contentKey(entry), path);
  return { folder, paths };
}

/** Returns the files that a previous round copied and verified as a link source. */
export async function sourceOfStaging(
  { folder, expectedList }: Staging,
  wrong: ReadonlySet<string>,
): Promise<LinkSource> {
  const paths = new Map<string, string>();
  for await (const file of readExpected(expectedList))
    if (!wrong.has(file.path)) paths.set(contentKey(file), file.path);
  return { folder, paths };
}

export async function* readExpected(path: string): AsyncGenerator<Expected> {
  const file = await open(path, 'r');
  try {
    for await (const line of file.readLines({ encoding: 'latin1' })) {
      const [kind, size, checksum = '', name = ''] = line.split(' ');
      yield { path: name, size: Number(size), checksum, executable: kind === 'x' };
    }
  } finally {
    await file.close().catch(() => undefined);
  }
}

type Appender = { add(bytes: Buffer): Promise<void> | undefined; close(): Promise<void> };
const BUFFER = 256 * 1024;

async function createAppender(path: string): Promise<Appender> {
  const file = await open(path, 'wx', 0o600);
  let parts: Buffer[] = [];
  let size = 0;
  let tail = Promise.resolve();
  const flush = (): Promise<void> => {
    const bytes = Buffer.concat(parts);
    parts = [];
    size = 0;
    tail = tail.then(() => file.appendFile(bytes));
    return tail;
  };
  return {
    add(bytes) {
      parts.push(bytes);
      size += bytes.length;
      return size < BUFFER ? undefined : flush();
    },
    async close() {
      try {
        await flush();
      } finally {
        await file.close();
      }
    },
  };
}
