/**
 * Creates private folders for copies of a database: mode 0700, on a disk with enough free space,
 * and always removed at the end.
 */
import { mkdtemp, rm, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { messageOf } from '@berth/kit/message-of';
import { BackupError } from './errors.ts';
import { SCRATCH } from './targets.ts';

/** Disk space to leave free for the control plane, which can use the same disk. */
export const SPARE_BYTES = 64 * 1024 ** 2;

/** `bytes`: expected size of the files that `run` writes, as far as it is known. */
export async function inScratch<T>(
  folder: string,
  bytes: number,
  run: (scratch: string) => Promise<T>,
): Promise<T> {
  const scratch = await mkdtemp(join(folder, SCRATCH)).catch((error: unknown) => {
    // Berth does not create this folder: a new folder would hide that a disk is not mounted.
    const hint =
      (error as NodeJS.ErrnoException).code === 'ENOENT' ? '; create it, or mount its disk' : '';
    throw new BackupError(
      'target_unavailable',
      `the folder ${folder} cannot be written: ${messageOf(error)}${hint}`,
      { cause: error },
    );
  });
  try {
    const { bavail, bsize } = await statfs(scratch);
    const free = bavail * bsize;
    if (free < bytes + SPARE_BYTES)
      throw new BackupError(
        'disk_full',
        `the disk of ${folder} has ${megabytes(free)} free; a backup needs ` +
          `${megabytes(bytes + SPARE_BYTES)} there`,
      );
    return await run(scratch);
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
}

const megabytes = (bytes: number): string => `${Math.ceil(bytes / 1024 ** 2)} MiB`;
