/** /healthz and /readyz of the agent, where LISTEN is set. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Listen } from '@berth/kit/config';

export type Readiness = { ready: boolean; reasons: string[] };
export type HealthServer = { port: number; close(): Promise<void> };

export function startHealthServer(listen: Listen, readiness: () => Readiness): Promise<HealthServer> {
  const server = createServer((request, response) => {
    const path = request.url?.split('?')[0];
    const reply = (status: number, body: unknown): void =>
      void response.writeHead(status, { 'content-type': 'application/json' }).end(`${JSON.stringify(body)}\n`);
    if (request.method !== 'GET' && request.method !== 'HEAD') return reply(405, { error: 'only GET' });
    if (path === '/healthz') return reply(200, { status: 'ok' });
    if (path !== '/readyz') return reply(404, { error: 'there is /healthz and /readyz' });
    const { ready, reasons } = readiness();
    reply(ready ? 200 : 503, { status: ready ? 'ready' : 'not ready', reasons });
  });
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(listen.port, listen.host, () =>
      resolve({
        port: (server.address() as AddressInfo).port,
        close: () =>
          new Promise((done) => {
            server.close(() => done());
            server.closeAllConnections();
          }),
      }),
    );
  });
}
