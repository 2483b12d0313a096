/** /healthz, /readyz and /metrics of the agent, where LISTEN is set. Nobody logs in: LISTEN says who reaches them. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Listen } from '@berth/kit/config';

export type Readiness = { ready: boolean; reasons: string[] };
export type HealthServer = { port: number; close(): Promise<void> };
export type HealthPages = {
  readiness: () => Promise<Readiness>;
  metrics: () => Promise<{ type: string; text: string }>;
};

export function startHealthServer(listen: Listen, pages: HealthPages): Promise<HealthServer> {
  const server = createServer((request, response) => {
    const path = request.url?.split('?')[0];
    const send = (status: number, type: string, body: string): void => void response.writeHead(status, { 'content-type': type }).end(body);
    const reply = (status: number, body: unknown): void => send(status, 'application/json', `${JSON.stringify(body)}\n`);
    if (request.method !== 'GET' && request.method !== 'HEAD') return reply(405, { error: 'only GET' });
    if (path === '/healthz') return reply(200, { status: 'ok' });
    if (path === '/metrics')
      return void pages.metrics().then(
        ({ type, text }) => send(200, type, text),
        (error: unknown) => reply(500, { error: `the metrics cannot be read: ${String(error)}` }),
      );
    if (path !== '/readyz') return reply(404, { error: 'there is /healthz, /readyz and /metrics' });
    void pages.readiness().then(
      ({ ready, reasons }) => reply(ready ? 200 : 503, { status: ready ? 'ready' : 'not ready', reasons }),
      (error: unknown) => reply(500, { error: `the readiness cannot be read: ${String(error)}` }),
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
