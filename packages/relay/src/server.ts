/**
 * Serves the reverse proxy: the same path, bytes and long polls as the control plane
 * (docs/interfaces.md "Held answers"). With `wait`, a request is held while the proxy already has
 * the current configuration. If-None-Match names the configuration that the proxy has. Without that
 * header, the last answer on the connection counts.
 */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import type { Listen } from '@berth/kit/config';
import type { Configuration, ConfigStore } from './config-store.ts';
import { createMetrics, type Metrics } from './metrics.ts';
import type { Upstream } from './upstream.ts';

export type RelayServer = { listen(at: Listen): Promise<AddressInfo>; close(): Promise<void> };

const PATH = '/api/traefik/config';
const MAX_WAIT_SECONDS = 60;

export function createRelayServer(
  store: ConfigStore,
  upstream: Pick<Upstream, 'problem'>,
  {
    now = Date.now,
    metrics = createMetrics(store, upstream, { now }),
  }: { now?: () => number; metrics?: Metrics } = {},
): RelayServer {
  const closing = new AbortController();
  /**
   * ETag of the last answer on each connection. The first request on a connection is answered at
   * once.
   */
  const lastOn = new WeakMap<Socket, string>();
  const ageOf = (c: Configuration): number => Math.max(0, Math.floor((now() - c.at) / 1000));

  async function configuration(
    request: IncomingMessage,
    response: ServerResponse,
    waitMs: number,
  ): Promise<void> {
    const requestEtag = request.headers['if-none-match'] ?? null;
    const last = lastOn.get(request.socket);
    const has = (c: Configuration): boolean =>
      requestEtag === null ? last === c.etag : requestEtag === c.etag;
    const closed = new AbortController();
    const ended = metrics.asked();
    response.once('close', () => {
      ended();
      closed.abort();
    });
    const signal = AbortSignal.any([closing.signal, closed.signal]);
    const end = performance.now() + waitMs;
    for (;;) {
      const current = store.current();
      const remainingMs = end - performance.now();
      if (remainingMs > 0 && !signal.aborted && (current === null ? false : has(current))) {
        await store.changed(remainingMs, signal);
        continue;
      }
      // Traefik keeps its configuration on a 503; an empty answer would drop every route
      // (docs/testbed.md "Facts that the code relies on").
      if (current === null)
        return json(response, 503, {
          error: 'no configuration yet: the control plane has not answered',
        });
      response.setHeader('etag', current.etag);
      response.setHeader('x-berth-config-age', String(ageOf(current)));
      lastOn.set(request.socket, current.etag);
      if (requestEtag === current.etag) response.writeHead(304).end();
      else
        response
          .writeHead(200, { 'content-type': 'application/json' })
          .end(request.method === 'HEAD' ? undefined : current.bytes);
      return;
    }
  }

  function readiness(response: ServerResponse): void {
    const current = store.current();
    json(response, current === null ? 503 : 200, {
      status: current === null ? 'not ready' : 'ready',
      config_age_seconds: current === null ? null : ageOf(current),
      control_plane: upstream.problem() ?? 'answers',
    });
  }

  const server = createServer((request, response) => {
    // Null if the address is not valid, for example `//[`.
    const url = URL.parse(request.url ?? '/', 'http://relay.invalid');
    if (request.method !== 'GET' && request.method !== 'HEAD')
      return json(response, 405, { error: 'only GET and HEAD are allowed' });
    if (url?.pathname === '/healthz') return json(response, 200, { status: 'ok' });
    if (url?.pathname === '/readyz') return readiness(response);
    if (url?.pathname === '/metrics')
      return void metrics.render().then(
        ({ type, text }) => response.writeHead(200, { 'content-type': type }).end(text),
        (error: unknown) =>
          json(response, 500, { error: `reading the metrics failed: ${String(error)}` }),
      );
    if (url?.pathname !== PATH)
      return json(response, 404, {
        error: `no such page; the pages are ${PATH}, /healthz, /readyz and /metrics`,
      });
    const wait = Number(url.searchParams.get('wait') ?? 0);
    const waitMs = Number.isFinite(wait) ? Math.min(Math.max(wait, 0), MAX_WAIT_SECONDS) * 1000 : 0;
    configuration(request, response, waitMs).catch((error: unknown) =>
      response.destroy(error instanceof Error ? error : undefined),
    );
  });

  return {
    listen: (at) =>
      new Promise((resolve, reject) => {
        server.once('error', reject);
        server.listen(at.port, at.host, () => resolve(server.address() as AddressInfo));
      }),
    close: () =>
      new Promise((resolve) => {
        closing.abort();
        server.close(() => resolve());
        server.closeIdleConnections();
      }),
  };
}

const json = (response: ServerResponse, status: number, body: unknown): void =>
  void response
    .writeHead(status, { 'content-type': 'application/json' })
    .end(`${JSON.stringify(body)}\n`);
