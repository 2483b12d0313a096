import { createServer } from 'node:net';

/**
 * A port that was free a moment ago on `address`. Another program may take it before it is used, so a
 * caller that starts a server with it should be ready to try again.
 */
export async function freePort(address = '127.0.0.1'): Promise<number> {
  const [port] = await freePorts(1, address);
  return port as number;
}

/** `count` different free ports; held together until all are known, so none is given twice. */
export async function freePorts(count: number, address = '127.0.0.1'): Promise<number[]> {
  const servers = Array.from({ length: count }, () => createServer());
  try {
    return await Promise.all(
      servers.map(
        (server) =>
          new Promise<number>((resolve, reject) => {
            server.once('error', reject);
            server.listen(0, address, () => {
              const bound = server.address();
              if (bound === null || typeof bound === 'string') reject(new Error('no port was given'));
              else resolve(bound.port);
            });
          }),
      ),
    );
  } finally {
    await Promise.all(servers.map((server) => new Promise<void>((resolve) => server.close(() => resolve()))));
  }
}

/** Whether nothing listens on this port of `address` right now. */
export function isFree(port: number, address = '127.0.0.1'): Promise<boolean> {
  const server = createServer();
  return new Promise((resolve) => {
    server.once('error', () => resolve(false));
    server.listen(port, address, () => server.close(() => resolve(true)));
  });
}
