/** Fills a file system to the last byte; the returned function frees the space. */
import { open, rm } from 'node:fs/promises';
import { join } from 'node:path';

export async function fill(path: string): Promise<() => Promise<void>> {
  const ballast = join(path, 'ballast');
  const file = await open(ballast, 'w');
  try {
    for (const size of [1 << 20, 1 << 12, 1]) {
      const chunk = Buffer.alloc(size);
      try {
        for (;;) await file.write(chunk);
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
      }
    }
  } finally {
    await file.close();
  }
  return () => rm(ballast, { force: true });
}
