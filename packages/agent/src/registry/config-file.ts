/**
 * The registry's configuration file (REGISTRY_CONFIG), which makes the registry read-only: distribution has no other way. A change takes
 * effect with a restart. A marker in STATE_DIR says that this agent made it read-only, so that a later process undoes it.
 */
import { readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { failPoint } from '@berth/kit/fail-point';
import { type Document, parseDocument } from 'yaml';
import { TaskFailure } from '../tools/failures.ts';

export type RegistryConfigFile = {
  path: string;
  /** Whether an agent process made the registry read-only and did not undo it. */
  isMarked(): Promise<boolean>;
  /** Writes the marker, then the setting. Throws TaskFailure registry_not_read_only. */
  setReadOnly(): Promise<void>;
  /** Restores the file. The marker stays until `forget`. */
  setWritable(): Promise<void>;
  forget(): Promise<void>;
  /** The operator made it read-only, not an agent. */
  isReadOnlyByOperator(): Promise<boolean>;
  /** Folder of the images; null if they are not on a file system. */
  folder(): Promise<string | null>;
};

const READ_ONLY = ['storage', 'maintenance', 'readonly', 'enabled'];
/** `original`: the file before the change; `written`: the file with the change. */
type Marker = { original: string; written: string };

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
      throw new TaskFailure('registry_not_read_only', `REGISTRY_CONFIG is not readable: ${(error as Error).message}`);
    });
    const document = parseDocument(text);
    if (document.errors.length > 0)
      throw new TaskFailure('registry_not_read_only', `REGISTRY_CONFIG (${path}) is no YAML: ${document.errors[0]?.message ?? ''}`);
    return { text, document };
  }
  return {
    path,
    isMarked: async () => (await marker()) !== null,
    async setReadOnly() {
      const { text, document } = await read();
      document.setIn(READ_ONLY, true);
      const written = document.toString();
      await replaceFile(markerPath, JSON.stringify({ original: text, written } satisfies Marker), 0o600);
      await failPoint('clean.marked');
      await replaceFile(path, written);
    },
    async setWritable() {
      const left = await marker();
      if (left === null) return;
      const present = await readFile(path, 'utf8');
      if (present === left.original) return;
      // A person changed the file meanwhile: only our setting goes. An empty or torn file is restored.
      const document = parseDocument(present);
      const isOurs = present === left.written || document.errors.length > 0 || !document.has('storage');
      if (!isOurs) document.deleteIn(READ_ONLY);
      await replaceFile(path, isOurs ? left.original : document.toString());
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

/** Replaces a file in one step. A file that is a mount point cannot be replaced: it is written in place. */
async function replaceFile(path: string, text: string, mode?: number): Promise<void> {
  const found = await stat(path).catch(() => null);
  try {
    await writeFile(`${path}.berth`, text, { mode: mode ?? (found === null ? 0o600 : found.mode & 0o777), flush: true });
    await rename(`${path}.berth`, path);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    await rm(`${path}.berth`, { force: true }).catch(() => undefined);
    if (!['EBUSY', 'EROFS', 'EACCES', 'EXDEV'].includes(code ?? '')) throw error;
    await writeFile(path, text, { flush: true });
  }
}
