/**
 * Edits the registry's configuration file (REGISTRY_CONFIG) to make the registry read-only, which
 * is the only way with distribution. A change takes effect after a restart. A marker in STATE_DIR
 * records that this agent made the registry read-only, so that a later process can undo it.
 */
import { open, readFile, realpath, rm, stat } from 'node:fs/promises';
import { failPoint } from '@berth/kit/fail-point';
import { writeFileWhole } from '@berth/kit/write-file';
import { type Document, isMap, parseDocument } from 'yaml';
import { TaskFailure } from '../failures.ts';

export type RegistryConfigFile = {
  path: string;
  /** Tells whether an agent process made the registry read-only and did not undo it. */
  isMarked(): Promise<boolean>;
  /** Writes the marker, then the setting. Throws TaskFailure registry_not_read_only. */
  setReadOnly(): Promise<void>;
  /** Restores the file. The marker stays until `forget`. */
  setWritable(): Promise<void>;
  forget(): Promise<void>;
  /**
   * Writes the marker if the registry was made read-only by an agent whose state is lost. Call this
   * only while no other agent cleans.
   */
  adopt(): Promise<void>;
  /** Tells whether the operator, and not an agent, made the registry read-only. */
  isReadOnlyByOperator(): Promise<boolean>;
  /** Returns the folder of the images; null if they are not on a file system. */
  folder(): Promise<string | null>;
};

/**
 * Note in the file during a clean-up. It tells an agent without state that no person made the
 * registry read-only.
 */
const NOTE = '# Berth makes the registry read-only while it cleans it (docs/clean-up.md)';
const READ_ONLY = ['storage', 'maintenance', 'readonly', 'enabled'];
type Access = { mode: number; uid: number; gid: number };
type Marker = {
  /** Content of the file before the change. */
  original: string;
  /** Content of the file with the change. */
  written: string;
  /** Mode and owner of the file; absent in markers of older versions. */
  access?: Access;
};

export function createRegistryConfigFile(path: string, markerPath: string): RegistryConfigFile {
  const marker = async (): Promise<Marker | null> => {
    try {
      return JSON.parse(await readFile(markerPath, 'utf8')) as Marker;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
      throw error;
    }
  };
  async function read(): Promise<{ text: string; document: Document }> {
    const text = await readFile(path, 'utf8').catch((error: unknown) => {
      throw new TaskFailure(
        'registry_not_read_only',
        `REGISTRY_CONFIG is not readable: ${(error as Error).message}`,
      );
    });
    const document = parseDocument(text);
    if (document.errors.length > 0)
      throw new TaskFailure(
        'registry_not_read_only',
        `REGISTRY_CONFIG (${path}) is no YAML: ${document.errors[0]?.message ?? ''}`,
      );
    return { text, document };
  }
  async function mark(original: string, written: string): Promise<void> {
    const { mode, uid, gid } = await stat(path);
    await replaceFile(
      markerPath,
      JSON.stringify({ original, written, access: { mode, uid, gid } } satisfies Marker),
    );
  }
  return {
    path,
    isMarked: async () => (await marker()) !== null,
    async setReadOnly() {
      const { text, document } = await read();
      removeEmptyParents(document);
      document.setIn(READ_ONLY, true);
      const written = `${document.toString()}${NOTE}\n`;
      await mark(text, written);
      await failPoint('clean.marked');
      await replaceFile(path, written);
    },
    async setWritable() {
      const ownMark = await marker();
      if (ownMark === null) return;
      const present = await readFile(path, 'utf8').catch((error: NodeJS.ErrnoException) => {
        // The file was removed. Restore it: without it, the registry would not start again.
        if (error.code === 'ENOENT') return '';
        throw error;
      });
      if (present === ownMark.original) return;
      // If a person changed the file meanwhile, remove only the agent's setting. Restore an empty
      // or half-written file.
      const document = parseDocument(present);
      const isOurs =
        isMixture(present, ownMark) || document.errors.length > 0 || !document.has('storage');
      await replaceFile(path, isOurs ? ownMark.original : withoutReadOnly(present), ownMark.access);
    },
    async adopt() {
      if ((await marker()) !== null) return;
      const { text, document } = await read();
      if (!text.includes(NOTE) || document.getIn(READ_ONLY) !== true) return;
      await mark(withoutReadOnly(text), text);
    },
    forget: () => rm(markerPath, { force: true }),
    async isReadOnlyByOperator() {
      return (await marker()) === null && (await read()).document.getIn(READ_ONLY) === true;
    },
    async folder() {
      const folder = (await read()).document.getIn(['storage', 'filesystem', 'rootdirectory']);
      return typeof folder === 'string' ? folder : null;
    },
  };
}

/** Removes the setting and the note from the text, unless a person has already removed them. */
function withoutReadOnly(text: string): string {
  const document = parseDocument(text.replace(`${NOTE}\n`, '').replace(NOTE, ''));
  if (document.hasIn(READ_ONLY)) document.deleteIn(READ_ONLY);
  removeEmptyParents(document);
  return document.toString();
}

/**
 * Removes `maintenance` and `readonly` if they are empty: the registry does not start with an empty
 * `readonly`, and yaml writes no value into either.
 */
function removeEmptyParents(document: Document): void {
  for (let depth = READ_ONLY.length - 1; depth > 1; depth--) {
    const parent = READ_ONLY.slice(0, depth);
    const content = document.getIn(parent);
    if (content === null || (isMap(content) && content.items.length === 0))
      document.deleteIn(parent);
  }
}

/**
 * Tells whether a process died while it was writing the file in place: a half-written file mixes
 * old and new text.
 */
function isMixture(text: string, { original, written }: Marker): boolean {
  if (text.length !== original.length && text.length !== written.length) return false;
  for (let i = 0; i < text.length; i++)
    if (text[i] !== original[i] && text[i] !== written[i]) return false;
  return true;
}

/**
 * Replaces a file in one step, with its mode and owner, so that the registry can still read it.
 * Writes in place if the file cannot be replaced: it is a mount point, the folder is not writable,
 * its owner cannot be kept, or the disk is full.
 */
async function replaceFile(link: string, text: string, access?: Access): Promise<void> {
  // Write to the target of a symlink, so that the symlink stays.
  const path = await realpath(link).catch(() => link);
  const stats = await stat(path).catch(() => null);
  const wanted = stats ?? access;
  try {
    await writeFileWhole(path, text, wanted && { owner: wanted, mode: wanted.mode & 0o7777 });
  } catch (error) {
    if (stats === null || !IN_PLACE.includes((error as NodeJS.ErrnoException).code ?? ''))
      throw error;
    await overwrite(path, Buffer.from(text), stats.size);
  }
}
const IN_PLACE = ['EBUSY', 'EROFS', 'EACCES', 'EPERM', 'EXDEV', 'ENOSPC', 'EDQUOT'];

/** Writes first the part that needs more disk space: without space, the file stays unchanged. */
async function overwrite(path: string, bytes: Buffer, size: number): Promise<void> {
  const file = await open(path, 'r+');
  const write = async (from: number, to: number): Promise<void> => {
    for (let at = from; at < to; ) at += (await file.write(bytes, at, to - at, at)).bytesWritten;
  };
  try {
    await write(size, bytes.length).catch(async (error: unknown) => {
      await file.truncate(size);
      throw error;
    });
    await write(0, Math.min(size, bytes.length));
    await file.truncate(bytes.length);
    await file.sync();
  } finally {
    await file.close();
  }
}
