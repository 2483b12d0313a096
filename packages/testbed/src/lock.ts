import { createHash } from 'node:crypto';
import { realpathSync } from 'node:fs';
import { createServer } from 'node:net';

export interface FolderLock {
  release(): Promise<void>;
}

/**
 * Locks a folder for this process, or returns undefined while another process has the lock. The
 * lock is an abstract unix socket named after the folder. The kernel removes it with its process,
 * so no lock becomes stale. (Linux only, like the private engine. The lock is valid within one
 * network namespace.)
 */
export async function lockFolder(folder: string): Promise<FolderLock | undefined> {
  const name = createHash('sha256').update(realpathSync(folder)).digest('hex').slice(0, 24);
  const server = createServer((socket) => socket.end(`${process.pid}\n`));
  server.unref();
  const taken = await new Promise<boolean>((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'EADDRINUSE') resolve(true);
      else reject(error);
    });
    server.listen({ path: `\0berth-testbed-${name}` }, () => resolve(false));
  });
  if (taken) return undefined;
  return { release: () => new Promise((resolve) => server.close(() => resolve())) };
}
