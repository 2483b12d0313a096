/**
 * Applications for agents that only pretend to run containers: each project has an address of its
 * own, as with a real engine.
 */
import { createServer, type RequestListener, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';

export type Applications = {
  /** The port of the project's server on 127.0.0.1; the first call starts it. */
  portOf(project: string): Promise<number>;
  /** Closes all servers and their connections. */
  stop(): Promise<void>;
};

export function startApplications(listener: RequestListener): Applications {
  const servers = new Map<string, Promise<Server>>();
  const start = (): Promise<Server> =>
    new Promise((resolve, reject) => {
      const server = createServer(listener).once('error', reject);
      server.listen(0, '127.0.0.1', () => resolve(server));
    });
  return {
    async portOf(project) {
      let server = servers.get(project);
      if (server === undefined) servers.set(project, (server = start()));
      return ((await server).address() as AddressInfo).port;
    },
    async stop() {
      const all = await Promise.all(servers.values());
      servers.clear();
      await Promise.all(
        all.map(
          (server) =>
            new Promise<void>((resolve) => {
              server.close(() => resolve());
              server.closeAllConnections();
            }),
        ),
      );
    },
  };
}
