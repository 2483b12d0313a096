import { createHash } from 'node:crypto';
import { realpathSync } from 'node:fs';
import { createServer } from 'node:net';

export interface FolderLock {
  release(): Promise<void>;
}

/**
 * Takes a folder for this process alone, or gives undefined when a living process has it.
 * The lock is an abstract unix socket named after the folder: the kernel drops it with its process, so
 * there is nothing stale to judge. (Linux only, as the own engine is; holds within one network namespace.)
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
