/**
 * Serves /healthz, /readyz and /metrics of the agent if LISTEN is set. The endpoints need no login:
 * the address in LISTEN decides who can reach them.
 */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Listen } from '@berth/kit/config';
import type { Readiness } from './readiness.ts';

export type HealthServer = { port: number; close(): Promise<void> };
export type HealthPages = {
  readiness: () => Promise<Readiness>;
  metrics: () => Promise<{ type: string; text: string }>;
};

export function startHealthServer(listen: Listen, pages: HealthPages): Promise<HealthServer> {
  const server = createServer((request, response) => {
    const path = request.url?.split('?')[0];
    const send = (status: number, type: string, body: string): void =>
      void response.writeHead(status, { 'content-type': type }).end(body);
    const reply = (status: number, body: unknown): void =>
      send(status, 'application/json', `${JSON.stringify(body)}\n`);
    if (request.method !== 'GET' && request.method !== 'HEAD')
      return reply(405, { error: 'only GET and HEAD are allowed' });
    if (path === '/healthz') return reply(200, { status: 'ok' });
    if (path === '/metrics')
      return void pages.metrics().then(
        ({ type, text }) => send(200, type, text),
        (error: unknown) => reply(500, { error: `reading the metrics failed: ${String(error)}` }),
      );
    if (path !== '/readyz')
      return reply(404, { error: 'no such page; the pages are /healthz, /readyz and /metrics' });
    void pages.readiness().then(
      ({ ready, ...rest }) =>
        reply(ready ? 200 : 503, { status: ready ? 'ready' : 'not ready', ...rest }),
      (error: unknown) => reply(500, { error: `reading the readiness failed: ${String(error)}` }),
    );
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
