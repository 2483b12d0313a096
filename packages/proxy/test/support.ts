/**
 * Small real servers, and a client that can send any Host header. Everything uses loopback and
 * ports that the system selects.
 */
import http, {
  type IncomingHttpHeaders,
  type IncomingMessage,
  type RequestListener,
} from 'node:http';
import type { AddressInfo } from 'node:net';
import { silentLogger } from '@berth/kit/log';
import { onTestFinished } from 'vitest';
import { parseConfiguration } from '../src/configuration.ts';
import { type Configurations, compile } from '../src/router.ts';
import { createProxy, type ProxyServer } from '../src/server.ts';

export type Backend = {
  url: string;
  port: number;
  server: http.Server;
  requests: IncomingMessage[];
};

export async function backend(listener: RequestListener): Promise<Backend> {
  const requests: IncomingMessage[] = [];
  const server = http.createServer({ maxHeaderSize: 262_144 }, (req, res) => {
    requests.push(req);
    listener(req, res);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  onTestFinished(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });
  return { url: `http://127.0.0.1:${port}`, port, server, requests };
}

/** A backend that answers with its name. */
export const named = (name: string): Promise<Backend> => backend((_, res) => res.end(name));

export type Proxy = ProxyServer & { port: number; useHttp(http: object, file?: object): void };

export async function startProxy(): Promise<Proxy> {
  const proxy = createProxy(silentLogger());
  const { port } = await proxy.listen({ host: '127.0.0.1', port: 0 });
  onTestFinished(() => proxy.close(0));
  return {
    ...proxy,
    port,
    useHttp(http, file) {
      const configurations: Configurations = {
        http: parseConfiguration({ http }),
        ...(file === undefined ? {} : { file: parseConfiguration({ http: file }) }),
      };
      proxy.use(compile(configurations));
    },
  };
}

/** Returns the configuration of one project in the form that the control plane writes. */
export function project(
  name: string,
  url: string,
  more: { middlewares?: Record<string, object> } = {},
): { routers: object; services: object; middlewares?: object } {
  const middlewares = more.middlewares ?? {};
  const rule = `Host(\`${name}.berth.localhost\`)`;
  return {
    routers: {
      [name]: {
        rule,
        entryPoints: ['websecure'],
        service: name,
        tls: { certResolver: 'letsencrypt' },
        middlewares: Object.keys(middlewares),
      },
      [`${name}-http`]: {
        rule,
        entryPoints: ['web'],
        service: name,
        middlewares: ['redirect-to-https@file'],
      },
    },
    services: { [name]: { loadBalancer: { servers: [{ url }] } } },
    middlewares,
  };
}

export type Got = { status: number; headers: IncomingHttpHeaders; body: string };
export type Ask = {
  method?: string;
  headers?: Record<string, string | string[]>;
  body?: string;
  agent?: http.Agent;
};

export const ask = (port: number, host: string, path = '/', options: Ask = {}): Promise<Got> =>
  new Promise((resolve, reject) => {
    const { method = 'GET', headers = {}, body, agent = false } = options;
    const request = http.request(
      { host: '127.0.0.1', port, path, method, agent, headers: { host, ...headers } },
      (response) => {
        let text = '';
        response.setEncoding('utf8');
        response.on('data', (chunk: string) => {
          text += chunk;
        });
        response.on('end', () =>
          resolve({ status: response.statusCode ?? 0, headers: response.headers, body: text }),
        );
        response.on('error', reject);
      },
    );
    request.on('error', reject);
    request.end(body);
  });

export const HOST = 'shop.berth.localhost';
