/**
 * Places that store backups: a folder, or a bucket of an object storage. A half-written file never
 * has the name of a backup.
 */
import { createWriteStream } from 'node:fs';
import { open, readdir, rm, stat } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { messageOf } from '@berth/kit/message-of';
import { replaceFile } from '@berth/kit/write-file';
import { BackupError, isDiskFull } from './errors.ts';
import { named } from './names.ts';
import type { Target } from './target.ts';

export type S3Settings = { /** Null: AWS. */ endpoint: string | null };

const S3 = /^s3:\/\/(?<bucket>[^/]+)\/?(?<prefix>.*)$/;
const PARTIAL = '.partial';
/** A partial file older than this belongs to a process that died. */
const DEAD_MS = 24 * 3_600_000;

export async function targetOf(text: string, s3: S3Settings): Promise<Target> {
  const { bucket, prefix } = S3.exec(text)?.groups ?? {};
  if (bucket === undefined) return folderTarget(resolve(text));
  // Imported only when needed: the library is large, and most backups go to a folder.
  const { s3Target } = await import('./s3.ts');
  return s3Target({ bucket, prefix: prefix ?? '', ...s3 });
}

/** Splits the address of one backup into its target and its name. */
export async function backupAt(
  text: string,
  s3: S3Settings,
): Promise<{ target: Target; name: string }> {
  if (!S3.test(text)) {
    const path = resolve(text);
    return { target: await targetOf(dirname(path), s3), name: basename(path) };
  }
  const slash = text.lastIndexOf('/');
  return { target: await targetOf(text.slice(0, slash), s3), name: text.slice(slash + 1) };
}

function folderTarget(folder: string): Target {
  const failed = (doing: string, error: unknown): BackupError =>
    isDiskFull(error)
      ? new BackupError('disk_full', `the disk of ${folder} is full: ${doing}`, { cause: error })
      : new BackupError(
          'target_unavailable',
          `the folder ${folder} cannot be used: ${doing}: ${messageOf(error)}`,
          { cause: error },
        );
  async function names(): Promise<string[]> {
    try {
      return await readdir(folder);
    } catch (error) {
      // Berth does not create this folder: a new folder would hide that a disk is not mounted.
      const hint =
        (error as NodeJS.ErrnoException).code === 'ENOENT' ? '; create it, or mount its disk' : '';
      throw new BackupError(
        'target_unavailable',
        `the folder ${folder} cannot be read: ${messageOf(error)}${hint}`,
        { cause: error },
      );
    }
  }
  return {
    shown: folder,
    folder,
    async put(name, content) {
      await removeDead(folder, await names());
      const partial = join(folder, `.${name}${PARTIAL}`);
      try {
        await pipeline(content, createWriteStream(partial, { flags: 'wx', mode: 0o600 }));
        await replaceFile(partial, join(folder, name));
      } catch (error) {
        await rm(partial, { force: true });
        if (error instanceof BackupError) throw error;
        throw failed(`the backup ${name} was not written and nothing of it remains`, error);
      }
    },
    async get(name) {
      const path = join(folder, name);
      try {
        // Opens the file here, because an error at the first read of a stream would not name the
        // file.
        const file = await open(path, 'r');
        return file.createReadStream({ highWaterMark: 1024 ** 2 });
      } catch (error) {
        throw new BackupError(
          'target_unavailable',
          `the backup ${path} cannot be read: ${messageOf(error)}`,
          { cause: error },
        );
      }
    },
    list: async () => (await names()).map(named).filter((found) => found !== null),
    async remove(name) {
      await rm(join(folder, name), { force: true }).catch((error: unknown) => {
        throw failed(`the backup ${name} was not deleted`, error);
      });
    },
  };
}

async function removeDead(folder: string, names: readonly string[]): Promise<void> {
  const ours = names.filter(
    (name) => (name.startsWith('.berth-') && name.endsWith(PARTIAL)) || name.startsWith(SCRATCH),
  );
  for (const name of ours) {
    const path = join(folder, name);
    const { mtimeMs } = await stat(path).catch(() => ({ mtimeMs: Date.now() }));
    if (Date.now() - mtimeMs > DEAD_MS) await rm(path, { force: true, recursive: true });
  }
}

/** Prefix of the names of scratch folders. */
export const SCRATCH = '.berth-scratch-';
